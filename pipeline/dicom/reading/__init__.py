"""The reader that runs inside a decode child: bytes of one instance in, header and stored values out."""
