import hashlib

import numpy as np

from pipeline.imaging.fingerprint import fingerprint

INPUT = np.arange(16, dtype=np.uint8).reshape(4, 4)


def test_equal_inputs_to_one_model_have_equal_fingerprints() -> None:
    assert fingerprint(INPUT, model="lesion:1") == fingerprint(INPUT.copy(order="F"), model="lesion:1")


def test_the_fingerprint_is_the_digest_of_model_shape_type_and_bytes() -> None:
    spelled = b"8:lesion:1;3:4x4;5:uint8;" + bytes(range(16))
    assert fingerprint(INPUT, model="lesion:1") == hashlib.sha256(spelled).hexdigest()


def test_one_grey_level_the_shape_and_the_model_all_count() -> None:
    other = INPUT.copy()
    other[3, 3] += 1
    variants = {
        fingerprint(INPUT, model="lesion:1"),
        fingerprint(other, model="lesion:1"),
        fingerprint(INPUT.reshape(2, 8), model="lesion:1"),
        fingerprint(INPUT, model="lesion:2"),
    }
    assert len(variants) == 4
