"""Arrays in, arrays out: rescale, window, letterbox, fingerprint, components, overlay."""
