"""Browser and system in words, for the list of sessions."""

import pytest

from stoplist.web.admin.user_agents import browser_in_words

_WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
_WINDOWS = f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {_WEBKIT}"
_MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)"
_ANDROID = f"Mozilla/5.0 (Linux; Android 10; K) {_WEBKIT}"
_IOS = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)"
AGENTS = {
    "Chrome 126 on Linux": f"Mozilla/5.0 (X11; Linux x86_64) {_WEBKIT} Chrome/126.0.0.0 Safari/537.36",
    "Chrome 126 on Windows": f"{_WINDOWS} Chrome/126.0.0.0 Safari/537.36",
    "Chrome 126 on Android": f"{_ANDROID} Chrome/126.0.0.0 Mobile Safari/537.36",
    "Chrome 126 on ChromeOS": f"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) {_WEBKIT} Chrome/126.0.0.0 Safari/537.36",
    "Chrome 126 on iPhone": f"{_IOS} CriOS/126.0.6478.54 Mobile/15E148 Safari/604.1",
    "Edge 125 on Windows": f"{_WINDOWS} Chrome/125.0.0.0 Safari/537.36 Edg/125.0.0.0",
    "Opera 111 on macOS": f"{_MAC} {_WEBKIT} Chrome/125.0.0.0 Safari/537.36 OPR/111.0.0.0",
    "Samsung Internet 25 on Android": f"{_ANDROID} SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36",
    "Firefox 128 on Windows": "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Firefox 127 on iPhone": f"{_IOS} FxiOS/127.0 Mobile/15E148 Safari/605.1.15",
    "Safari 17 on iPhone": f"{_IOS} Version/17.5 Mobile/15E148 Safari/604.1",
    "Safari 17 on macOS": f"{_MAC} AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15",
    "Firefox 128": "Firefox/128.0",
    "curl/8.5.0": "curl/8.5.0",
    "Unknown browser": "",
}


@pytest.mark.parametrize(("words", "user_agent"), AGENTS.items(), ids=AGENTS)
def test_a_user_agent_is_said_in_words(words: str, user_agent: str) -> None:
    """The examples are those of today's browsers; an unknown one stays as it is."""
    assert browser_in_words(user_agent) == words
