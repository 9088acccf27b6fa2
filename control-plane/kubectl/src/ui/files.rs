//! The files of the page. They are few and small, and nothing builds them.

/// A file: its path behind the secret, its type, its text.
pub(super) type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

pub(super) const FILES: [File; 12] = [
    ("", HTML, include_str!("page/page.html")),
    ("page.css", STYLE, include_str!("page/page.css")),
    ("page.js", SCRIPT, include_str!("page/page.js")),
    ("model.js", SCRIPT, include_str!("page/model.js")),
    ("draw.js", SCRIPT, include_str!("page/draw.js")),
    ("rows.js", SCRIPT, include_str!("page/rows.js")),
    ("stories.js", SCRIPT, include_str!("page/stories.js")),
    ("well.svg", IMAGE, include_str!("icons/well.svg")),
    ("notice.svg", IMAGE, include_str!("icons/notice.svg")),
    ("attention.svg", IMAGE, include_str!("icons/attention.svg")),
    ("alarm.svg", IMAGE, include_str!("icons/alarm.svg")),
    ("unknown.svg", IMAGE, include_str!("icons/unknown.svg")),
];
