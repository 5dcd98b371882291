"""A real inference process whose network never ends on one image, or loses the device over it: `python -m ... DIGEST [lost]`."""

import hashlib
import sys
import threading
from typing import Any

import torch
from torch import Tensor

from pipeline.inference import networks
from pipeline.inference.networks.lesion_unet import LesionUNet
from workers import inference


def main(deadly: str, how: str = "hangs") -> None:
    """Serve the models of the settings; the image of this digest (SHA-256 of its bytes) holds its batch for ever, or ends the device."""

    class HangingUNet(LesionUNet):
        def forward(self, display: Tensor) -> tuple[Tensor, Tensor]:
            images = (display * 255).round().to(torch.uint8).contiguous()
            if any(hashlib.sha256(image.numpy().tobytes()).hexdigest() == deadly for image in images):
                if how == "lost":
                    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
                threading.Event().wait()
            answer: tuple[Tensor, Tensor] = super().forward(display)
            return answer

    known: dict[str, Any] = {"lesion-unet": HangingUNet}
    networks.NETWORKS = known  # type: ignore[misc]
    inference.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
