//! Splits Rust source into code and comments without parsing it. Both parts keep every line break,
//! so a line number in one is a line number in the file; neither may ever hold a string's contents.

/// Gives (code, comments): the text with everything else replaced by spaces.
pub fn split(text: &str) -> (String, String) {
    let mut splitter = Splitter {
        rest: text,
        code: String::with_capacity(text.len()),
        comments: String::with_capacity(text.len()),
    };
    while !splitter.rest.is_empty() {
        let (kind, length) = next_piece(splitter.rest, splitter.code.chars().next_back());
        splitter.take(kind, length);
    }
    (splitter.code, splitter.comments)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

struct Splitter<'a> {
    rest: &'a str,
    code: String,
    comments: String,
}

impl Splitter<'_> {
    fn take(&mut self, kind: Kind, length: usize) {
        let (piece, rest) = self.rest.split_at(length);
        for character in piece.chars() {
            let blank = if character == '\n' { '\n' } else { ' ' };
            self.code.push(if kind == Kind::Code { character } else { blank });
            self.comments.push(if kind == Kind::Comment { character } else { blank });
        }
        self.rest = rest;
    }
}

/// The kind and byte length of what the text, which is not empty, starts with.
fn next_piece(text: &str, before: Option<char>) -> (Kind, usize) {
    if text.starts_with("//") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block_comment_length(text));
    }
    let after_word =
        before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    if !after_word && let Some(length) = raw_string_length(text) {
        return (Kind::Literal, length);
    }
    if text.starts_with('"') {
        return (Kind::Literal, quoted_length(text, '"'));
    }
    if text.starts_with('\'') && is_character_literal(text) {
        return (Kind::Literal, quoted_length(text, '\''));
    }
    (Kind::Code, text.chars().next().map_or(1, char::len_utf8))
}

/// Block comments nest.
fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut position) = (0_usize, 0);
    while let Some(rest) = text.get(position..) {
        if rest.starts_with("/*") {
            depth += 1;
            position += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            match rest.chars().next() {
                Some(character) => position += character.len_utf8(),
                None => break,
            }
        }
    }
    text.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` and so on, if the text starts with one.
fn raw_string_length(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|&prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['"', '#']))
    })?;
    let body = &text[prefix.len()..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = prefix.len() + hashes + 1;
    Some(content.find(&end).map_or(text.len(), |position| start + position + end.len()))
}

/// The length of a literal that starts with `quote`, with both quotes; a backslash escapes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == quote {
            return position + character.len_utf8();
        }
    }
    text.len()
}

/// Tells `'a'` and `'\n'` from the lifetime `'a`.
fn is_character_literal(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => true,
        (Some(_), Some(second)) => second == '\'',
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both parts with their blanks squeezed, after a check that each lines up with the text.
    fn squeezed(text: &str) -> (String, String) {
        let (code, comments) = split(text);
        let widths = |text: &str| -> Vec<usize> {
            text.split('\n').map(|line| line.chars().count()).collect()
        };
        assert_eq!(widths(&code), widths(text));
        assert_eq!(widths(&comments), widths(text));
        let squeeze = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        (squeeze(code), squeeze(comments))
    }

    fn code(text: &str) -> String {
        squeezed(text).0
    }

    #[test]
    fn comments_are_split_off() {
        let (code, comments) = squeezed("let a; // why\nlet b; /* x /* y\n */ z */ let c;");
        assert_eq!(code, "let a; let b; let c;");
        assert_eq!(comments, "// why /* x /* y */ z */");
    }

    #[test]
    fn strings_are_blanked_with_their_escapes() {
        assert_eq!(code(r#"f("a // \" unsafe", b)"#), "f( , b)");
        assert_eq!(code("f(r#\"a \" unsafe\"#, b)"), "f( , b)");
        assert_eq!(code("f(br\"unsafe\\\", c)"), "f( , c)");
        assert_eq!(code("f(b\"ünsafe\", c)"), "f(b , c)");
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code("['\"', '\\'', 'x']"), "[ , , ]");
    }

    #[test]
    fn raw_identifiers_and_words_that_end_in_r_are_code() {
        assert_eq!(code("r#type(for\"x\")"), "r#type(for )");
    }

    #[test]
    fn unterminated_text_ends_with_the_file() {
        for text in ["a \"b", "a /* b", "a r#\"b\"", "a '\\"] {
            assert_eq!(code(text), "a");
        }
    }
}
