#!/bin/bash -eu
# OSS-Fuzz runs this in its image: see scripts/fuzz.
exec "$SRC/coracle/scripts/fuzz" build
