"""The one colour ramp of all pictures: lightness rises evenly, so order survives colour blindness and grey print.

Colours are made in OKLCH (Björn Ottosson 2020, "A perceptual color space for image processing") and cut to sRGB. `light`
runs from paper to ink, `dark` from the dark page to light. A picture stores the square root of a weight in 8 bits; the
filter tables below turn those levels into colours, on a square-root or a linear scale, in the browser.
"""

from functools import cache
from math import cos, radians, sin

# Lightness, chroma, hue (degrees) at weight 0 and on to weight 1; between these the ramp is straight in all three.
ANCHORS = {
    "light": ((0.985, 0.006, 95), (0.885, 0.085, 76), (0.745, 0.155, 42), (0.575, 0.195, 14), (0.415, 0.170, -34),
              (0.255, 0.110, -68)),
    "dark": ((0.245, 0.022, -75), (0.365, 0.130, -58), (0.510, 0.180, -22), (0.670, 0.175, 22), (0.830, 0.120, 62),
             (0.970, 0.055, 96)),
}
STOPS = 33          # entries of a filter table; the browser interpolates between them


def _linear(lightness, chroma, hue):
    """OKLCH -> linear sRGB, which may lie outside 0..1."""
    a, b = chroma * cos(radians(hue)), chroma * sin(radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short)


def _srgb(lightness, chroma, hue):
    """OKLCH -> sRGB in 0..1, with as much of the chroma as the screen can show."""
    while chroma > 0 and not all(-1e-4 <= c <= 1.0001 for c in _linear(lightness, chroma, hue)):
        chroma = max(0.0, chroma - 0.002)
    channels = (min(1.0, max(0.0, c)) for c in _linear(lightness, chroma, hue))
    return tuple(12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in channels)


@cache
def colour(theme, level):
    """(red, green, blue), each 0..1, at a level 0..1 of the ramp of a theme, `light` or `dark`."""
    anchors = ANCHORS[theme]
    place = min(1.0, max(0.0, level)) * (len(anchors) - 1)
    at = min(int(place), len(anchors) - 2)
    return _srgb(*(a + (b - a) * (place - at) for a, b in zip(anchors[at], anchors[at + 1], strict=True)))


def filter_tables(theme, scale):
    """{"R": "0.98 0.97 ...", "G": ..., "B": ...}: the tables of an SVG feComponentTransfer, stored level -> colour.

    The stored level is the square root of the weight. scale: `sqrt` shows it as it is, `linear` shows the weight.
    """
    levels = [i / (STOPS - 1) for i in range(STOPS)]
    shown = [colour(theme, level if scale == "sqrt" else level ** 2) for level in levels]
    return {name: " ".join(f"{c[k]:.4f}" for c in shown) for k, name in enumerate("RGB")}


@cache
def colormap():
    """The light ramp as a matplotlib colormap of 256 steps; NaN (masked) cells are transparent."""
    from matplotlib.colors import ListedColormap
    ramp = ListedColormap([colour("light", i / 255) for i in range(256)], name="inspector")
    return ramp.with_extremes(bad=(0, 0, 0, 0))


# Lightness, chroma and hue of the ends of signed numbers, -1 blue and 1 red, and the lightness of 0: a theme's own paper.
SIGNED = {"light": (0.985, {-1: (0.40, 0.150, 255), 1: (0.40, 0.160, 20)}),
          "dark": (0.245, {-1: (0.80, 0.110, 245), 1: (0.80, 0.120, 40)})}


def signed(theme, place):
    """(red, green, blue), each 0..1, of a number from -1 (blue) over 0 (the theme's paper) to 1 (red)."""
    paper, ends = SIGNED[theme]
    lightness, chroma, hue = ends[1 if place > 0 else -1]
    return _srgb(paper + (lightness - paper) * abs(place), chroma * abs(place), hue)


@cache
def diverging():
    """A matplotlib colormap for signed numbers: paper at 0, blue below, red above, as dark; NaN is transparent."""
    from matplotlib.colors import ListedColormap
    ramp = [signed("light", i / 127.5 - 1) for i in range(256)]
    return ListedColormap(ramp, name="inspector_signed").with_extremes(bad=(0, 0, 0, 0))
