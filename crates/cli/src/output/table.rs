//! Tables as text: with lines around the cells for people at a terminal, without them for
//! everything that reads a pipe.
//!
//! Knows columns and widths, not where the text goes.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::paint::{Paint, Style};

/// A cell, and how it is coloured.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// Below this a table with lines cannot be read; columns are then printed without them.
pub(crate) const WIDTH_MIN: usize = 40;

/// A column is not made narrower than this: a cell of fewer characters says nothing.
const COLUMN_MIN: usize = 6;

/// Lines above the first row, then the rows, cut to `width` where one is given.
pub(crate) fn boxed(
    title: Option<&str>,
    header: &[String],
    rows: &[Vec<Cell>],
    width: Option<usize>,
    paint: Paint,
) -> String {
    let mut table = Streamed::new(header.to_vec(), rows, false, width);
    let mut out = table.rows(rows, title.unwrap_or_default(), paint);
    out += &table.end(paint);
    out
}

/// Columns set apart by spaces; nothing is cut, so that a pipe gets everything.
pub(crate) fn plain(header: &[String], rows: &[Vec<Cell>]) -> String {
    Streamed::new(header.to_vec(), rows, true, None).rows(rows, "", Paint::PLAIN)
}

/// A table whose rows come bit by bit; the first of them decide how wide its columns are.
pub(crate) struct Streamed {
    header: Vec<String>,
    widths: Vec<usize>,
    is_plain: bool,
    has_begun: bool,
}

impl Streamed {
    /// A table with lines, cut to `width` where one is given, or without lines and uncut.
    pub(crate) fn new(
        header: Vec<String>,
        first: &[Vec<Cell>],
        is_plain: bool,
        width: Option<usize>,
    ) -> Self {
        let mut widths = natural_widths(&header, first);
        if let Some(width) = width.filter(|_| !is_plain) {
            // Each column has a line and a space on both sides, and there is one line more.
            shrink(&mut widths, width.saturating_sub(3 * header.len() + 1));
        }
        Self {
            header,
            widths,
            is_plain,
            has_begun: false,
        }
    }

    /// More rows, behind what stands above the first.
    pub(crate) fn rows(&mut self, rows: &[Vec<Cell>], title: &str, paint: Paint) -> String {
        let mut out = String::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            let cell = |text: &String| Cell {
                text: text.clone(),
                style: if self.is_plain {
                    Style::None
                } else {
                    Style::Header
                },
            };
            let header: Vec<Cell> = self.header.iter().map(cell).collect();
            if self.is_plain {
                out += &self.plain_row(&header);
            } else {
                if !title.is_empty() {
                    out += &(paint.apply(Style::Title, title) + "\n");
                }
                out += &self.rule(['╭', '┬', '╮'], paint);
                out += &self.boxed_row(&header, paint);
                out += &self.rule(['├', '┼', '┤'], paint);
            }
        }
        for cells in rows {
            out += &match self.is_plain {
                true => self.plain_row(cells),
                false => self.boxed_row(cells, paint),
            };
        }
        out
    }

    /// What stands below the last row.
    pub(crate) fn end(&mut self, paint: Paint) -> String {
        match self.is_plain {
            true => String::new(),
            false => self.rule(['╰', '┴', '╯'], paint),
        }
    }

    fn rule(&self, [left, middle, right]: [char; 3], paint: Paint) -> String {
        let parts: Vec<String> = self.widths.iter().map(|w| "─".repeat(w + 2)).collect();
        let line = format!("{left}{}{right}", parts.join(&middle.to_string()));
        paint.apply(Style::Dim, &line) + "\n"
    }

    fn boxed_row(&self, cells: &[Cell], paint: Paint) -> String {
        let bar = paint.apply(Style::Dim, "│");
        let mut line = bar.clone();
        for (cell, width) in cells.iter().zip(&self.widths) {
            let text = fit(&cell.text, *width);
            let padding = " ".repeat(width - text.width());
            line += &format!(" {}{padding} {bar}", paint.apply(cell.style, &text));
        }
        line + "\n"
    }

    fn plain_row(&self, cells: &[Cell]) -> String {
        let mut line = String::new();
        let last = cells.len().saturating_sub(1);
        for (index, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            let text = one_line(&cell.text);
            line += &text;
            if index < last {
                line += &" ".repeat(width.saturating_sub(text.width()) + 2);
            }
        }
        line + "\n"
    }
}

fn natural_widths(header: &[String], rows: &[Vec<Cell>]) -> Vec<usize> {
    let mut widths: Vec<usize> = header.iter().map(|text| text.width()).collect();
    for cells in rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(one_line(&cell.text).width());
        }
    }
    widths
}

/// Takes from the widest column until all fit, or none can give more. The first column names the
/// thing and gives last.
fn shrink(widths: &mut [usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let widest = widths
            .iter()
            .enumerate()
            .skip(usize::from(widths.len() > 1))
            .filter(|(_, width)| **width > COLUMN_MIN)
            .max_by_key(|(_, width)| **width)
            .map(|(index, _)| index);
        match widest {
            Some(index) => widths[index] -= 1,
            None if widths.first().is_some_and(|width| *width > COLUMN_MIN) => widths[0] -= 1,
            None => return,
        }
    }
}

/// The text cut to a width, with an ellipsis where something is missing.
fn fit(text: &str, width: usize) -> String {
    let text = one_line(text);
    if text.width() <= width {
        return text;
    }
    let mut out = String::new();
    let mut used = 0;
    for letter in text.chars() {
        let wide = letter.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        out.push(letter);
        used += wide;
    }
    out + "…"
}

/// A cell is one line, and nothing that came from a sandbox may move the cursor.
fn one_line(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(words: &[&str]) -> Vec<Cell> {
        let cell = |text: &&str| Cell {
            text: (*text).to_owned(),
            style: Style::None,
        };
        words.iter().map(cell).collect()
    }

    #[test]
    fn boxes_fit_the_terminal() {
        let header = ["ID".to_owned(), "IMAGE".to_owned()];
        let rows = [cells(&["abc", "a-very-long-image-name:1.2.3"])];
        let text = boxed(Some("Things"), &header, &rows, Some(24), Paint::PLAIN);
        assert_eq!(
            text,
            "Things\n\
             ╭─────┬────────────────╮\n\
             │ ID  │ IMAGE          │\n\
             ├─────┼────────────────┤\n\
             │ abc │ a-very-long-i… │\n\
             ╰─────┴────────────────╯\n"
        );
        assert!(
            text.lines().skip(1).all(|line| line.width() <= 24),
            "{text}"
        );
    }

    #[test]
    fn pipes_get_everything_without_lines() {
        let header = ["ID".to_owned(), "N".to_owned()];
        let rows = [cells(&["abc", "1"]), cells(&["a\x1b[31m", "日本"])];
        assert_eq!(
            plain(&header, &rows),
            "ID      N\nabc     1\na [31m  日本\n"
        );
    }
}
