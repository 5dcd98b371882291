"""The product's version, as the package states it."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("secondread")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0.0.0+checkout"


PRODUCT_VERSION = _version()
