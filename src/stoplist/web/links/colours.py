"""The accent colour of an organization, with colours for the text and the edge of its buttons that can be seen.

Source: WCAG 2.2, relative luminance and contrast ratio.
"""

DEFAULT_ACCENT = "#1d4ed8"
LIGHT_CARD, DARK_CARD = "#ffffff", "#1d1d21"
"""The colours of the card behind the buttons."""

_BLACK, _WHITE = "#000000", "#ffffff"
_LEAST_EDGE_CONTRAST = 3


def text_colour_on(colour: str) -> str:
    """Return black or white, whichever contrasts more with a colour such as `#0a66c2`: by 4.5 to 1 at least."""
    return _BLACK if contrast(colour, _BLACK) >= contrast(colour, _WHITE) else _WHITE


def edge_colour(accent: str, card: str) -> str:
    """Return the colour of the edge of a button: the accent, or that of lines if the accent is too close to the card.

    3 to 1 is the least contrast of a control: WCAG 2.2, criterion 1.4.11.
    """
    return accent if contrast(accent, card) >= _LEAST_EDGE_CONTRAST else "var(--line)"


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
