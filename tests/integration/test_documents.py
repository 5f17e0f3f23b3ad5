"""What is printed from the code is what stands in docs/, and what the documents name is there."""
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = ["README.md"] + sorted(os.path.join("docs", f) for f in os.listdir(os.path.join(ROOT, "docs")) if f.endswith(".md"))


def test_state_diagrams_are_printed_from_the_rows():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "diagrams"), "--check"], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_links_and_named_files_exist(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    here = os.path.dirname(os.path.join(ROOT, page))
    missing = [link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
               if not os.path.exists(os.path.join(here, link))]
    named = re.findall(r"`((?:base|broker|cli|config|console|docs|examples|fence|net|outbox|pool|schemas|scripts|tests)"
                       r"/[\w./-]+)`", text)
    missing += [name for name in named if not os.path.exists(os.path.join(ROOT, name.rstrip(".")))]
    assert not missing, f"{page} names what is not there: {missing}"


def test_every_scene_named_in_the_documents_exists():
    with open(os.path.join(ROOT, "docs", "PROTOCOL.md"), encoding="utf-8") as file:
        text = file.read()
    scenes = set()
    for group in re.findall(r"scenes? ((?:`\w+`(?:, )?)+)", text):
        scenes.update(re.findall(r"`(\w+)`", group))
    there = {f.removesuffix(".scn") for f in os.listdir(os.path.join(ROOT, "tests", "scenario")) if f.endswith(".scn")}
    assert scenes and scenes <= there, scenes - there
