"""Foreign exceptions become refusals of ours, at the one place where a library is called."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.dicom.errors import TooLarge
from pipeline.errors import RejectedInput


@contextmanager
def foreign_errors_as(refusal: type[RejectedInput], message: str) -> Iterator[None]:
    """Turn whatever a parser or codec raises into `refusal`; our own refusals pass.

    The codecs raise nearly anything for damaged input, StopIteration and the panic of a Rust extension
    (a BaseException) among it, and the texts of foreign errors may quote the file: only the type's name is kept.

    Raises
    ------
    RejectedInput
        `refusal`, or TooLarge where memory ran out.
    """
    try:
        yield
    except (RejectedInput, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except MemoryError as error:
        raise TooLarge("decoding needs more memory than a decode child may take") from error
    except BaseException as error:
        raise refusal(message, raised=type(error).__name__) from error
