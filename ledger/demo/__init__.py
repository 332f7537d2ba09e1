"""The demonstration: the whole loop on real input, narrated and checked."""
