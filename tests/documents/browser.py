"""The browser of a person who allows what is asked for, and is alice: `python browser.py URL`.

It goes where pages and answers lead it, with its cookies, and ends where the client has its answer.
"""

import html
import http.cookiejar
import re
import sys
import urllib.parse
import urllib.request

TIMEOUT_S = 20


class Browser:
    def __init__(self):
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)

    def open(self, url, form=None, origin=None):
        """The text of a page; with a form, of what answers it."""
        body = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(url, body, {"Origin": origin} if origin else {})
        with self._opener.open(request, timeout=TIMEOUT_S) as response:
            return response.read().decode()


def found(pattern, page):
    """The text that a page has at the place of a pattern, without its escapes."""
    return html.unescape(re.search(pattern, page)[1])


def main(url):
    browser = Browser()
    parts = urllib.parse.urlsplit(url)
    gateway = f"{parts.scheme}://{parts.netloc}"
    consent = browser.open(url)
    answer = {"form": found(r'name="form" value="([^"]*)"', consent), "answer": "allow"}
    moving = browser.open(f"{gateway}/sign-in/consent", answer, gateway)
    browser.open(found(r'url=([^"]*)"', moving), {"user": "alice"})


if __name__ == "__main__":
    main(sys.argv[1])
