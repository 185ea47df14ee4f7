"""The health check of the image: exits with 0 if the server of this container answers at /healthz, else with 1.

It says whether the process lives. Whether its database does is for the balancer to ask, at /readyz: starting the server
anew would not bring the database back.
"""

import os
import ssl
from http.client import HTTPConnection, HTTPSConnection

port = int(os.environ.get("STOPLIST_PORT") or 8443)
connection: HTTPConnection
if os.environ.get("STOPLIST_TRUSTED_PROXIES") and not os.environ.get("STOPLIST_TLS_CERT"):
    connection = HTTPConnection("localhost", port, timeout=4)
else:
    context = ssl.create_default_context()
    # The certificate names the host that partners use, not this one.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection("localhost", port, timeout=4, context=context)
connection.request("GET", "/healthz")
status = connection.getresponse().status
if status != 200:
    raise SystemExit(f"/healthz answers {status}")
