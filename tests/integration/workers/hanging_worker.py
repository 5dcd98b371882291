"""A real inference process whose network never ends on one image: `python -m ... DIGEST`."""

import hashlib
import sys
import threading
from typing import Any

import torch
from torch import Tensor

from pipeline.inference import networks
from pipeline.inference.networks.lesion_unet import LesionUNet
from workers import inference


def main(deadly: str) -> None:
    """Serve the models of the settings; the image of this digest (SHA-256 of its bytes) holds its batch for ever."""

    class HangingUNet(LesionUNet):
        def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
            images = (display * 255).round().to(torch.uint8).contiguous()
            if any(hashlib.sha256(image.numpy().tobytes()).hexdigest() == deadly for image in images):
                threading.Event().wait()
            answer: tuple[Tensor, Tensor] = super().forward(display)
            return answer

    known: dict[str, Any] = {"lesion-unet": HangingUNet}
    networks.NETWORKS = known  # type: ignore[misc]
    inference.main()


if __name__ == "__main__":
    main(sys.argv[1])
