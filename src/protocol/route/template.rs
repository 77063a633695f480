//! URI templates (RFC 6570), as far as it takes to see what a completed value leads to.
//!
//! Values stand in the URI as they are, without the escapes that the standard asks for: a server that reads them so
//! must not be reached by what a rule denies, and a URI with needless escapes is none that anybody may use.

/// The operators of expressions.
const OPERATORS: &str = "+#./;?&";

/// The URI that comes of these values; variables that have none stay as they are, unless they may be left out. `None`:
/// `first` is no variable of the template, or the template makes no sense.
pub fn expand(template: &str, first: (&str, &str), others: &[(String, String)]) -> Option<String> {
    let mut uri = String::with_capacity(template.len() + first.1.len());
    let mut has_first = false;
    let mut rest = template;
    while let Some((literal, behind)) = rest.split_once('{') {
        let (expression, behind) = behind.split_once('}')?;
        uri.push_str(literal);
        rest = behind;
        let operator = expression.chars().next().filter(|char| OPERATORS.contains(*char));
        let names = expression.get(operator.map_or(0, char::len_utf8)..).unwrap_or_default();
        let mut is_begun = false;
        for (name, length_max) in names.split(',').map(variable) {
            let value = if name == first.0 {
                has_first = true;
                Some(first.1)
            } else {
                others.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
            };
            let Some(value) = value else { continue };
            uri.push_str(separator(operator, is_begun));
            if matches!(operator, Some(';' | '?' | '&')) {
                uri.extend([name, "="]);
            }
            uri.extend(value.chars().take(length_max));
            is_begun = true;
        }
        if !is_begun && !matches!(operator, Some('#' | ';' | '?' | '&')) {
            uri.extend(["{", expression, "}"]);
        }
    }
    uri.push_str(rest);
    has_first.then_some(uri)
}

/// The name of a variable, and how many characters of its value are taken.
fn variable(written: &str) -> (&str, usize) {
    let (name, length) = written.split_once(':').unwrap_or((written, ""));
    (name.trim_end_matches('*'), length.parse().unwrap_or(usize::MAX))
}

fn separator(operator: Option<char>, is_begun: bool) -> &'static str {
    match (operator, is_begun) {
        (Some('#'), false) => "#",
        (Some('?'), false) => "?",
        (Some('.'), _) => ".",
        (Some('/'), _) => "/",
        (Some(';'), _) => ";",
        (Some('?' | '&'), _) => "&",
        (_, true) => ",",
        (_, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_their_variables_stood() {
        let known = [("b".to_owned(), "2".to_owned()), ("long".to_owned(), "abcdef".to_owned())];
        for (template, expected) in [
            ("file:///{a}", Some("file:///x/y")),
            ("file:///{+a}/{b}/{c}", Some("file:///x/y/2/{c}")),
            ("file://{/b,a}{?b,a,c}{&b}{#a}", Some("file:///2/x/y?b=2&a=x/y&b=2#x/y")),
            ("t:{a*}{.b}{;a,b}{?c}{#c}{;c}", Some("t:x/y.2;a=x/y;b=2")),
            ("t:{long:3}{a:1}{a:x}", Some("t:abcxx/y")),
            ("t:{a,b}", Some("t:x/y,2")),
            ("t:{b}", None),
            ("t:a", None),
            ("t:{a", None),
            ("t:{}{a}}", Some("t:{}x/y}")),
        ] {
            assert_eq!(expand(template, ("a", "x/y"), &known).as_deref(), expected, "{template}");
        }
    }
}
