"""Write a made-up breast ultrasound instance: for demonstrations, smoke tests and load, never from a patient."""

from dataclasses import dataclass
from io import BytesIO
from typing import Final
from uuid import UUID, uuid5

import numpy as np
import numpy.typing as npt
import pydicom
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import UID, ExplicitVRLittleEndian

ULTRASOUND_IMAGE: Final = "1.2.840.10008.5.1.4.1.1.6.1"
"""Ultrasound Image Storage, PS3.4 table B.5-1."""
MM_PER_CM: Final = 10.0
_OURS: Final = UUID("5b0b6a9e-7f0c-4f0f-9d55-2d0f6a8a9b11")
"""Namespace of the phantoms' UIDs: the same name gives the same UID."""
_DATE, _TIME = "20260102", "120000"


@dataclass(frozen=True, slots=True)
class PhantomStudy:
    """Who and what a phantom instance claims to be. All of it is made up."""

    name: str = "phantom"
    """Study, series and instance UIDs derive from it and from `instance_number`."""
    instance_number: int = 1
    patient_id: str = "PHANTOM-1"
    patient_name: str = "Phantom^Breast"
    accession_number: str = "PHANTOM"
    laterality: str = "L"
    spacing_mm: tuple[float, float] | None = (0.1, 0.1)
    """(between rows, between columns); None leaves the scale out."""
    has_region: bool = True
    """State the scale as an ultrasound region in centimetres, as devices do."""
    has_pixel_spacing: bool = False
    """State it as Pixel Spacing (0028,0030) as well."""
    is_inverted: bool = False
    """Write MONOCHROME1 with the values turned: the same picture."""


def phantom_instance(image: npt.NDArray[np.uint8], study: PhantomStudy | None = None) -> bytes:
    """Write one ultrasound image as a DICOM file in Explicit VR Little Endian.

    Parameters
    ----------
    image
        (row, column), uint8, 0 black.
    study
        What the header says; the defaults where None.

    Returns
    -------
    A DICOM Part 10 file.

    References
    ----------
    DICOM PS3.3 A.6 (Ultrasound Image IOD), C.8.5.5 (US Region Calibration), C.8.5.6 (US Image).
    """
    told = study or PhantomStudy()
    dataset = Dataset()
    _write_study(dataset, told)
    _write_image(dataset, image, told)
    if told.spacing_mm is not None:
        _write_scale(dataset, image.shape, told.spacing_mm, told)
    return _part10(dataset)


def phantom_uid(*parts: object) -> UID:
    """A repeatable UID under 2.25 (PS3.5 annex B.2)."""
    return UID(f"2.25.{uuid5(_OURS, '/'.join(map(str, parts))).int}")


def _write_study(dataset: Dataset, told: PhantomStudy) -> None:
    """Patient, study, series and equipment."""
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.SOPClassUID = ULTRASOUND_IMAGE
    dataset.SOPInstanceUID = phantom_uid(told.name, "instance", told.instance_number)
    dataset.StudyInstanceUID = phantom_uid(told.name, "study")
    dataset.SeriesInstanceUID = phantom_uid(told.name, "series")
    dataset.StudyDate = dataset.SeriesDate = dataset.ContentDate = _DATE
    dataset.StudyTime = dataset.SeriesTime = dataset.ContentTime = _TIME
    dataset.AccessionNumber, dataset.StudyID = told.accession_number, "1"
    dataset.PatientName, dataset.PatientID = told.patient_name, told.patient_id
    dataset.PatientBirthDate, dataset.PatientSex = "", "O"
    dataset.ReferringPhysicianName = ""
    dataset.Modality, dataset.Manufacturer = "US", "secondread phantom"
    dataset.SeriesNumber, dataset.InstanceNumber = 1, told.instance_number
    dataset.BodyPartExamined, dataset.Laterality = "BREAST", told.laterality
    dataset.PatientOrientation = ""


def _write_image(dataset: Dataset, image: npt.NDArray[np.uint8], told: PhantomStudy) -> None:
    """Image Pixel and US Image modules."""
    dataset.ImageType = ["DERIVED", "SECONDARY", "BREAST", "0001"]
    dataset.LossyImageCompression = "00"
    dataset.BurnedInAnnotation = "NO"
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME1" if told.is_inverted else "MONOCHROME2"
    dataset.Rows, dataset.Columns = image.shape
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 8, 8, 7, 0
    stored = 255 - image if told.is_inverted else image
    content = np.ascontiguousarray(stored).tobytes()
    dataset.PixelData = content + b"\0" * (len(content) % 2)
    dataset["PixelData"].VR = "OB"


def _write_scale(dataset: Dataset, shape: tuple[int, ...], spacing_mm: tuple[float, float], told: PhantomStudy) -> None:
    if told.has_pixel_spacing:
        dataset.PixelSpacing = list(spacing_mm)
    if not told.has_region:
        return
    region = Dataset()
    region.RegionSpatialFormat, region.RegionDataType, region.RegionFlags = 1, 1, 0  # two-dimensional, tissue
    region.RegionLocationMinX0, region.RegionLocationMinY0 = 0, 0
    region.RegionLocationMaxX1, region.RegionLocationMaxY1 = shape[1] - 1, shape[0] - 1
    region.PhysicalUnitsXDirection = region.PhysicalUnitsYDirection = 3  # centimetres
    region.PhysicalDeltaY, region.PhysicalDeltaX = (distance_mm / MM_PER_CM for distance_mm in spacing_mm)
    dataset.SequenceOfUltrasoundRegions = Sequence([region])


def _part10(dataset: Dataset) -> bytes:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = dataset.SOPClassUID, dataset.SOPInstanceUID
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.ImplementationClassUID = phantom_uid("implementation")
    written = BytesIO()
    file = FileDataset(written, dataset, file_meta=meta, preamble=b"\0" * 128)
    pydicom.dcmwrite(written, file, enforce_file_format=True)
    return written.getvalue()
