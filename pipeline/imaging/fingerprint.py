"""What makes two inputs equal to a model."""

import hashlib

import numpy as np

from pipeline.imaging.arrays import ByteImage


def fingerprint(model_input: ByteImage, *, model: str) -> str:
    """Name a model input by its content: equal inputs to one model have equal fingerprints, on any machine.

    Parameters
    ----------
    model_input
        uint8, any shape: what the network is shown, byte for byte.
    model
        `name:version` of the model card that shaped it.

    Returns
    -------
    SHA-256, 64 hex digits.
    """
    digest = hashlib.sha256()
    # Lengths go before contents, so that no two different inputs spell the same bytes.
    for part in (model, "x".join(map(str, model_input.shape)), model_input.dtype.name):
        digest.update(f"{len(part)}:{part};".encode())
    digest.update(np.ascontiguousarray(model_input).data)
    return digest.hexdigest()
