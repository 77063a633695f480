"""What nginx and HAProxy see differently of what Trunkline reads, and why that is no danger.

By proxy and fixture. An entry that is of no use any more does no harm: another version may see it as Trunkline does.
"""

TAB = "to nginx a tab is a part of the value, which it refuses; RFC 9112, 5 has it among the blanks around one"
INTERIM = "nginx takes an interim reply for the answer; RFC 9110, 15.2 has another follow"
TRAILERS = "HAProxy refuses a framing among trailers, Trunkline drops all trailers: RFC 9110, 6.5.1 allows both"

REQUESTS = {
    ("nginx", "a tab before a coding"): TAB,
    ("nginx", "blanks around a length"): TAB,
    ("nginx", "two expectations"): "nginx refuses `Expect` twice; RFC 9110, 10.1.1 makes a list of it",
    ("haproxy", "a whole URI"): "HAProxy hands a whole URI on as it came; it names the same target",
    ("haproxy", "trailers that hide fields"): TRAILERS,
}

REPLIES = {
    ("nginx", "blanks around values"): TAB,
    ("nginx", "an interim reply"): INTERIM,
    ("nginx", "100 that nobody asked for"): INTERIM,
    ("nginx", "an interim reply with a length"): INTERIM,
    ("nginx", "sixteen interim replies"): INTERIM,
    ("haproxy", "trailers that hide fields"): TRAILERS,
}
