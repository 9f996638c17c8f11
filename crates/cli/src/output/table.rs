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
    let mut widths = natural_widths(header, rows);
    if let Some(width) = width {
        // Each column has a line and a space on both sides, and there is one line more.
        shrink(&mut widths, width.saturating_sub(3 * header.len() + 1));
    }
    let rule = |left: char, middle: char, right: char| {
        let parts: Vec<String> = widths.iter().map(|w| "─".repeat(w + 2)).collect();
        let line = format!("{left}{}{right}", parts.join(&middle.to_string()));
        paint.apply(Style::Dim, &line) + "\n"
    };
    let bar = paint.apply(Style::Dim, "│");
    let row = |cells: &[Cell]| {
        let mut line = bar.clone();
        for (cell, width) in cells.iter().zip(&widths) {
            let text = fit(&cell.text, *width);
            let padding = " ".repeat(width - text.width());
            line += &format!(" {}{padding} {bar}", paint.apply(cell.style, &text));
        }
        line + "\n"
    };
    let mut out = String::new();
    if let Some(title) = title {
        out += &(paint.apply(Style::Title, title) + "\n");
    }
    let header: Vec<Cell> = header
        .iter()
        .map(|text| Cell {
            text: text.clone(),
            style: Style::Header,
        })
        .collect();
    out += &rule('╭', '┬', '╮');
    out += &row(&header);
    out += &rule('├', '┼', '┤');
    for cells in rows {
        out += &row(cells);
    }
    out + &rule('╰', '┴', '╯')
}

/// Columns set apart by spaces; nothing is cut, so that a pipe gets everything.
pub(crate) fn plain(header: &[String], rows: &[Vec<Cell>]) -> String {
    let widths = natural_widths(header, rows);
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        let last = cells.len().saturating_sub(1);
        for (index, (text, width)) in cells.iter().zip(&widths).enumerate() {
            let text = one_line(text);
            line += &text;
            if index < last {
                line += &" ".repeat(width.saturating_sub(text.width()) + 2);
            }
        }
        line + "\n"
    };
    let mut out = line(header.iter().map(String::as_str).collect());
    for cells in rows {
        out += &line(cells.iter().map(|cell| cell.text.as_str()).collect());
    }
    out
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
