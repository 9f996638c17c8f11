//! Values of code: every form they have, and the ones that programs ask for by type.

use std::collections::BTreeMap;

use base64::Engine as _;

/// Forms of pictures, the sharpest first.
const FIGURE_TYPES: [&str; 5] = [
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
];

/// A value of code in every form it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RichResult {
    /// By media type: text as it is, images as base64.
    pub by_type: BTreeMap<String, String>,
    /// Which cell it is the value of; nothing for a display.
    pub count: Option<u64>,
}

/// The richest form that a value has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResultKind {
    /// A picture; see [`RichResult::figure`].
    Figure,
    /// A table; see [`RichResult::table`].
    Table,
    /// Plain text; see [`RichResult::text`].
    Text,
    /// Something else; see [`RichResult::by_type`].
    Other,
}

impl ResultKind {
    /// As the other SDKs and the conformance scenarios write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Figure => "figure",
            Self::Table => "table",
            Self::Text => "text",
            Self::Other => "other",
        }
    }
}

/// A picture that code made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// `image/png`, `image/svg+xml` and so on.
    pub media_type: String,
    /// The picture's own bytes.
    pub bytes: Vec<u8>,
}

impl RichResult {
    /// The richest form it has.
    pub fn kind(&self) -> ResultKind {
        if self.figure_type().is_some() {
            ResultKind::Figure
        } else if self.table_html().is_some() {
            ResultKind::Table
        } else if self.text().is_some() {
            ResultKind::Text
        } else {
            ResultKind::Other
        }
    }

    /// The value as plain text.
    pub fn text(&self) -> Option<&str> {
        let text = self.by_type.get("text/plain");
        text.or_else(|| self.by_type.get("text"))
            .map(String::as_str)
    }

    /// The value in this form.
    pub fn get(&self, media_type: &str) -> Option<&str> {
        self.by_type.get(media_type).map(String::as_str)
    }

    /// The value as a picture.
    ///
    /// ```
    /// use opensandbox::RichResult;
    ///
    /// let plot = RichResult {
    ///     by_type: [("image/png".to_owned(), "iVBORw0KGgo=".to_owned())].into(),
    ///     count: None,
    /// };
    /// assert!(plot.figure().unwrap().bytes.starts_with(b"\x89PNG"));
    /// ```
    pub fn figure(&self) -> Option<Figure> {
        let media_type = self.figure_type()?;
        let text = self.get(media_type)?;
        let bytes = if media_type == "image/svg+xml" {
            text.as_bytes().to_vec()
        } else {
            let packed: String = text.split_whitespace().collect();
            base64::engine::general_purpose::STANDARD
                .decode(packed)
                .ok()?
        };
        Some(Figure {
            media_type: media_type.to_owned(),
            bytes,
        })
    }

    /// The value as a table, where its HTML has one, as data frames have: rows of cells, the head
    /// first.
    pub fn table(&self) -> Option<Vec<Vec<String>>> {
        let html = self.table_html()?;
        let rows = elements(html, &["tr"]).into_iter();
        let cells = |row: &str| {
            let cells = elements(row, &["th", "td"]).into_iter();
            cells.map(plain_text).collect()
        };
        Some(rows.map(cells).collect())
    }

    fn figure_type(&self) -> Option<&'static str> {
        FIGURE_TYPES
            .into_iter()
            .find(|media_type| self.by_type.contains_key(*media_type))
    }

    fn table_html(&self) -> Option<&str> {
        let html = self.get("text/html")?;
        opening(html, &["table"], 0).map(|_| html)
    }
}

/// Where the next tag of these names begins, where it ends, and its name.
fn opening<'n>(html: &str, names: &[&'n str], from: usize) -> Option<(usize, usize, &'n str)> {
    let mut at = from;
    while let Some(found) = html.get(at..)?.find('<') {
        let start = at + found;
        let rest = &html[start + 1..];
        let name = names.iter().find(|name| {
            let is_named = rest
                .get(..name.len())
                .is_some_and(|text| text.eq_ignore_ascii_case(name));
            is_named && rest[name.len()..].starts_with(|c: char| c == '>' || c.is_whitespace())
        });
        if let Some(name) = name {
            let end = start + html[start..].find('>')? + 1;
            return Some((start, end, name));
        }
        at = start + 1;
    }
    None
}

/// What stands between the tags of each element of these names. They do not nest in one another
/// in the tables that data frames are printed as.
fn elements<'t>(html: &'t str, names: &[&str]) -> Vec<&'t str> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((_, inside, name)) = opening(html, names, at) {
        let closing = format!("</{name}");
        let rest = &html[inside..];
        let end = rest.to_ascii_lowercase().find(&closing);
        let end = end.unwrap_or(rest.len());
        found.push(&rest[..end]);
        at = inside + end;
    }
    found
}

/// Text without its tags, with the characters that HTML must write otherwise.
fn plain_text(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for character in html.chars() {
        match character {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            _ if is_tag => {}
            other => text.push(other),
        }
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&#39;", "'");
    let text = text.replace("&#x27;", "'").replace("&nbsp;", " ");
    text.replace("&amp;", "&").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(pairs: &[(&str, &str)]) -> RichResult {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        RichResult {
            by_type: pairs.iter().map(pair).collect(),
            count: None,
        }
    }

    #[test]
    fn the_richest_form_is_the_kind() {
        let both = [("image/png", "iVBORw0KGgo="), ("text/plain", "a plot")];
        assert_eq!(result(&both).kind(), ResultKind::Figure);
        assert_eq!(result(&both).figure().unwrap().media_type, "image/png");
        let frame = [("text/html", "<TABLE class=x></TABLE>"), ("text/plain", "")];
        assert_eq!(result(&frame).kind(), ResultKind::Table);
        let page = [("text/html", "<tablet>"), ("text/plain", "x")];
        assert_eq!(result(&page).kind(), ResultKind::Text);
        assert_eq!(
            result(&[("application/json", "1")]).kind(),
            ResultKind::Other
        );
        assert_eq!(result(&[("image/png", "no base64 *")]).figure(), None);
    }

    #[test]
    fn a_data_frame_is_rows_of_cells() {
        let html = "<div><table border=\"1\"><thead><tr><th></th><th>a &amp; b</th></tr></thead>\
                    <tbody><TR><th>0</th><TD><b>1</b> &lt; 2</TD></TR></tbody></table></div>";
        let table = result(&[("text/html", html)]).table().unwrap();
        assert_eq!(table, [["", "a & b"], ["0", "1 < 2"]]);
        assert_eq!(
            result(&[("text/html", "<table")]).table(),
            None,
            "half a tag"
        );
        assert_eq!(
            result(&[("text/html", "<table><tr><td>ü")])
                .table()
                .unwrap(),
            [["ü"]]
        );
    }
}
