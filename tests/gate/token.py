"""A token (JWT, ES256) and the keys to check it with.

They are constants, so that every run checks the same bytes. The key that signed it was thrown away.
"""

import json

ISSUER = "https://issuer.example"
AUDIENCE = "gate"
KEYS = json.dumps({
    "keys": [
        {
            "kty": "EC",
            "crv": "P-256",
            "kid": "k",
            "use": "sig",
            "alg": "ES256",
            "x": "HS5ZLuYhy5NhrAlvBAniWm0o8yrFgdD4tPjVwt2ykgY",
            "y": "_8oFfOSrWgHVLbFaGEqLmOdoI5jck6vJZw5i-BeqvPQ",
        }
    ]
})
#: Of subject and group `gate`, until 2100.
SIGNED = (
    "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkI"
    "joiZ2F0ZSIsInN1YiI6ImdhdGUiLCJncm91cHMiOlsiZ2F0ZSJdLCJzY29wZSI6Im1jcDpjYWxsIiwiaWF0IjoxNzY3MjI1NjAwL"
    "CJuYmYiOjE3NjcyMjU2MDAsImV4cCI6NDEwMjQ0NDgwMH0"
    ".xUjdFjM9gdNjb7_fSZDGiqp4eDIfOrlRtornYu72IpZUZ5YUK2rfXNipdtrqhpi0KEOxdwH4TCCs6-zDOvxr7A"
)
