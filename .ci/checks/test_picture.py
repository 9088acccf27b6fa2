"""The pictures of the README: how `.ci/picture` reads a terminal and a page, and that what is kept can be shown anywhere."""

import importlib.machinery
import importlib.util
import pathlib
import re
import xml.etree.ElementTree as tree

import pytest

LOADER = importlib.machinery.SourceFileLoader("picture", ".ci/picture")
picture = importlib.util.module_from_spec(importlib.util.spec_from_loader("picture", LOADER))
LOADER.exec_module(picture)


def screens(*texts):
    recording = picture.Recording()
    for text in texts:
        recording.take(f"\x1b[H\x1b[2J{text}")
    recording.end()
    return recording.screens


def test_a_recording_keeps_the_screens_that_say_something_new():
    found = screens("12:00:01\r\nWELL: silent for 1 s", "12:00:03\r\nWELL: silent for 3 s", "12:00:05\r\n\x1b[31mALARM\x1b[0m <b>")
    assert [lines for _, lines, _ in found] == [["12:00:01", "WELL: silent for 1 s"], ["12:00:05", "ALARM <b>"]]


def test_a_recording_plays_each_screen_and_ends_with_the_last():
    svg = tree.fromstring(picture.played(screens("t\none", "t\n<two>")))
    texts = ["".join(each.itertext()) for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["tone", "t<two>"]
    style = svg.find("{http://www.w3.org/2000/svg}style").text
    assert "#f0{opacity:0" in style and "#f1{opacity:1" in style, "where nothing plays the last screen is shown"


def test_a_drawing_has_the_words_and_the_colours_of_the_page():
    dom = '<div id="map-place"><svg width="9" height="40"><a href="#x" tabindex="0"><rect class="tile bad"></rect></a></svg></div>'
    dom += '<article class="strip"><h3><a href="#f">member1</a></h3><p>next</p><svg height="20" role="img"><line class="tick"></line></svg></article>'
    svg = picture.drawn(dom, ["a & b", "more"])
    root = tree.fromstring(svg)
    assert [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")] == ["a & b", "more", "member1", "next"]
    assert "var(" not in svg and "light-dark" not in svg and "href" not in svg


@pytest.mark.parametrize("name", ["failover.svg", "status.svg"])
def test_the_pictures_need_nothing_from_elsewhere(name):
    text = pathlib.Path(".github", name).read_text()
    tree.fromstring(text)
    assert not re.search(r"href|url\(|<script|var\(", text)
    assert len(text) < 40_000
