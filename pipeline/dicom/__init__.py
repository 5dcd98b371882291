"""DICOM in and out: parse, check and decode, in a child process that may die."""
