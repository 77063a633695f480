"""nginx with a file in place of a list, beside the Trunkline that made the list."""

import trunkline
from measure import fetch_tools, start
from peers import nginx_file


def sent_from_cache(site):
    """The kernel sends the file's cached pages themselves: nothing that answers from its memory is that cheap."""
    return nginx_file(site, "nginx-file", _list(site), "sendfile on; tcp_nopush on;")


def copied(site):
    """The file is read and written, as it must be where a filter or TLS wants to see it."""
    return nginx_file(site, "nginx-file-copied", _list(site), "sendfile off; output_buffers 2 256k;")


def _list(site):
    """The bytes that `trunkline-list` answers with."""
    if site.list_bytes is None:
        peer = trunkline.listing(site)
        child, _ready_ms = start(site.directory, peer)
        try:
            site.list_bytes = fetch_tools(peer)
        finally:
            child.stop()
    return site.list_bytes
