"""A person with a browser, as a script: it keeps cookies, follows redirects and pages that move on, and fills in the forms of the
gateway and of a provider.

Cookies are kept by host and name, whatever their path. It runs no script: neither has any.
"""

import dataclasses
import html.parser
import http.client
import urllib.parse

TIMEOUT_S = 60
#: More pages than any way through has.
PAGES_MAX = 20


@dataclasses.dataclass
class Page:
    url: str
    status: int
    headers: object
    text: str

    def document(self):
        found = Document()
        found.feed(self.text)
        return found


class Document(html.parser.HTMLParser):
    """What a browser does by itself or offers: where the page moves on to, and its first form."""

    def __init__(self):
        super().__init__()
        self.moves_to = None
        self.form = None
        self.words = []

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag == "meta" and (known.get("http-equiv") or "").lower() == "refresh":
            self.moves_to = known["content"].partition("url=")[2]
        elif tag == "form" and self.form is None:
            self.form = Form(known.get("action") or "", {}, [])
        elif tag in ("input", "button") and self.form and known.get("name"):
            named = known["name"], known.get("value") or ""
            if tag == "button" or known.get("type") == "submit":
                self.form.buttons.append(named)
            else:
                self.form.fields.update([named])

    def handle_data(self, data):
        self.words.append(data.strip())


@dataclasses.dataclass
class Form:
    action: str
    fields: dict
    buttons: list


class Person:
    """Somebody with an account at the provider; `answer` is what they say to the gateway's question, and `meanwhile` is called
    before they see a page."""

    def __init__(self, user, answer="allow", meanwhile=lambda: None):
        self.user, self.answer, self.meanwhile = user, answer, meanwhile
        self.cookies = {}
        self.seen = []

    def visit(self, url, client):
        """Goes where a client sends the browser, until the browser is sent back there. Returns that address."""
        self.meanwhile()
        page = self.open(url)
        for _ in range(PAGES_MAX):
            self.seen.append(page)
            following = page.headers["Location"]
            document = page.document()
            if following or document.moves_to:
                target = urllib.parse.urljoin(page.url, following or document.moves_to)
                self.meanwhile()
                if target.startswith(client):
                    return target
                page = self.open(target)
            elif document.form:
                self.meanwhile()
                page = self.send(page, document.form)
            else:
                break
        raise AssertionError(f"the browser ends at {page.url}: {page.status} {' '.join(page.document().words)}")

    def send(self, page, form):
        """Fills in a form: the name where it asks for one, and a button of the person, of the answer, or the only one."""
        filled = {name: value or self.user for name, value in form.fields.items()}
        wanted = [button for button in form.buttons if button[1] in (self.user, self.answer)]
        filled.update(wanted[:1] or form.buttons[:1])
        target = urllib.parse.urljoin(page.url, form.action or page.url)
        return self.open(target, urllib.parse.urlencode(filled), origin(page.url))

    def open(self, url, body=None, from_origin=None):
        parts = urllib.parse.urlsplit(url)
        known = self.cookies.setdefault(parts.hostname, {})
        headers = {"Accept": "text/html", "Cookie": "; ".join(f"{name}={value}" for name, value in known.items())}
        if body is not None:
            headers |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": from_origin}
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
        try:
            target = f"{parts.path}?{parts.query}" if parts.query else parts.path or "/"
            connection.request("POST" if body is not None else "GET", target, body, headers)
            response = connection.getresponse()
            page = Page(url, response.status, response.headers, response.read().decode())
        finally:
            connection.close()
        for cookie in page.headers.get_all("Set-Cookie", []):
            pair, _, attributes = cookie.partition(";")
            name, _, value = pair.partition("=")
            if "max-age=0" in attributes.lower() or "1970" in attributes:
                known.pop(name, None)
            else:
                known[name] = value
        return page


def origin(url):
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
