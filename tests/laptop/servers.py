"""Servers from npm and PyPI as a person writes them down for a client, with dummy credentials, and one call for each.

All of them work offline; calls that a service would have to answer are left out.
"""

import json
import pathlib
import shutil
import subprocess
import sys

TEXT = "Trunkline was here."
#: Server → arguments.
NPM = {
    "@brave/brave-search-mcp-server": ["--transport", "stdio"],
    "@modelcontextprotocol/server-everything": ["stdio"],
    "@modelcontextprotocol/server-filesystem": ["{directory}"],
    "@modelcontextprotocol/server-github": [],
    "@modelcontextprotocol/server-memory": [],
    "@modelcontextprotocol/server-sequential-thinking": [],
    "@notionhq/notion-mcp-server": [],
    "@zereight/mcp-gitlab": [],
    "exa-mcp-server": [],
    "firecrawl-mcp": [],
    "tavily-mcp": [],
}
PYPI = {
    "mcp-server-fetch": [],
    "mcp-server-git": ["--repository", "{directory}/repository"],
    "mcp-server-time": ["--local-timezone=UTC"],
}
ENVIRONMENT = {
    "@brave/brave-search-mcp-server": {"BRAVE_API_KEY": "BSA-dummy"},
    "@modelcontextprotocol/server-github": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_dummy00000000000000000000000000000000"},
    "@modelcontextprotocol/server-memory": {"MEMORY_FILE_PATH": "{directory}/memory.jsonl"},
    "@notionhq/notion-mcp-server": {"NOTION_TOKEN": "ntn_dummy0000"},
    "@zereight/mcp-gitlab": {
        "GITLAB_PERSONAL_ACCESS_TOKEN": "glpat-dummy0000000000000",
        "GITLAB_API_URL": "http://127.0.0.1:9/api/v4",
    },
    "exa-mcp-server": {"EXA_API_KEY": "exa-dummy-0000"},
    "firecrawl-mcp": {"FIRECRAWL_API_KEY": "fc-dummy0000"},
    "tavily-mcp": {"TAVILY_API_KEY": "tvly-dummy0000"},
}
#: Name of the server for its owner → tool, arguments, a part of the answer.
CALLS = {
    "files": ("read_text_file", {"path": "{directory}/note.txt"}, TEXT),
    "git": ("git_log", {"repo_path": "{directory}/repository"}, TEXT),
    "memory": ("read_graph", {}, "entities"),
    "everything": ("get-sum", {"a": 2, "b": 40}, "42"),
    "time": (
        "convert_time",
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "21:00:00+09:00",
    ),
}
NAMES = {
    "@brave/brave-search-mcp-server": "brave",
    "@modelcontextprotocol/server-everything": "everything",
    "@modelcontextprotocol/server-filesystem": "files",
    "@modelcontextprotocol/server-github": "github",
    "@modelcontextprotocol/server-memory": "memory",
    "@modelcontextprotocol/server-sequential-thinking": "thinking",
    "@notionhq/notion-mcp-server": "notion",
    "@zereight/mcp-gitlab": "gitlab",
    "exa-mcp-server": "exa",
    "firecrawl-mcp": "firecrawl",
    "tavily-mcp": "tavily",
    "mcp-server-fetch": "fetch",
    "mcp-server-git": "git",
    "mcp-server-time": "time",
}


def entries(npm, directory):
    """The servers as the file of a client has them: name → `command`, `args`, `env`."""
    found = {}
    for package, arguments in (NPM | PYPI).items():
        command = node_command(npm, package) if package in NPM else [str(pathlib.Path(sys.executable).with_name(package))]
        filled = filled_in([*command, *arguments, ENVIRONMENT.get(package, {})], directory)
        *words, environment = filled
        if package in NPM:
            environment["NODE_OPTIONS"] = f"--import={pathlib.Path(__file__).with_name('offline.mjs')}"
        found[NAMES[package]] = {"command": words[0], "args": words[1:], "env": environment}
    return found


def calls(directory):
    return filled_in(CALLS, directory)


def filled_in(value, directory):
    return json.loads(json.dumps(value).replace("{directory}", str(directory)))


def node_command(npm, package):
    folder = npm.resolve() / "node_modules" / package
    programs = json.loads((folder / "package.json").read_text())["bin"]
    program = programs if isinstance(programs, str) else next(iter(programs.values()))
    return [shutil.which("node"), str(folder / program)]


def make_directory(directory):
    """The files that the servers work on."""
    pathlib.Path(directory, "note.txt").write_text(TEXT)
    repository = str(pathlib.Path(directory, "repository"))
    subprocess.run(["git", "init", "-q", repository], check=True, timeout=10)
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    commit = ["git", "-C", repository, *identity, "commit", "-q", "--allow-empty", "-m", TEXT]
    subprocess.run(commit, check=True, timeout=10)
