"""Says in words which browser and system a User-Agent names, for the list of sessions.

Only a hint for people: browsers claim to be one another, and anybody may send any text.
"""

import re

# The first match wins: most browsers also name those that they are compatible with.
_BROWSERS = (
    (re.compile(r"Edg(?:e|A|iOS)?/(\d+)"), "Edge"),
    (re.compile(r"OPR/(\d+)"), "Opera"),
    (re.compile(r"Vivaldi/(\d+)"), "Vivaldi"),
    (re.compile(r"SamsungBrowser/(\d+)"), "Samsung Internet"),
    (re.compile(r"(?:Firefox|FxiOS)/(\d+)"), "Firefox"),
    (re.compile(r"HeadlessChrome/(\d+)"), "Headless Chrome"),
    (re.compile(r"(?:Chrome|CriOS)/(\d+)"), "Chrome"),
    (re.compile(r"Version/(\d+)[.\d]* (?:Mobile/\w+ )?Safari/"), "Safari"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("CrOS", "ChromeOS"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
)


def browser_in_words(user_agent: str) -> str:
    """Return such as `Firefox 128 on Windows`, or the text itself if it names no known browser."""
    name = next((f"{words} {found[1]}" for pattern, words in _BROWSERS if (found := pattern.search(user_agent))), "")
    system = next((words for mark, words in _SYSTEMS if mark in user_agent), "")
    if not name:
        return user_agent or "Unknown browser"
    return f"{name} on {system}" if system else name
