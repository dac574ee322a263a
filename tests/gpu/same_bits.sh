#!/bin/sh
# same_bits.sh GPU_RUN MODEL: one rank and two, processes of their own, give the same bits. Then the figures, as they are.
set -e
one=$("$1" "$2" 1 bits) two=$("$1" "$2" 2 bits)
echo "$one"
echo "$two"
[ "$one" = "$two" ] || { echo "two ranks gave other bits than one"; exit 1; }
"$1" "$2" 1 figures
