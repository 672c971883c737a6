//! What says that something is a secret: a name, a place or a command. One capture group each: what is
//! to go.
//!
//! Where two match at the same place, the first in the list wins. A pattern starts and ends where a word
//! does, so that what is taken out never exposes the rest of something longer.

use std::ops::Range;

/// One form of secret.
pub(super) struct Pattern {
    /// Its name in the placeholder.
    pub(super) kind: &'static str,
    /// With one group.
    pub(super) regex: &'static str,
    /// What more must hold, where the form alone would say too much.
    check: Check,
}

pub(super) enum Check {
    /// The form is enough.
    Form,
    /// Nearly anything, where a command of one of these names stands before it on its line.
    Argument(&'static [&'static str]),
    /// The group is empty and stands where cookies start, which go up to the end of the line or string.
    Cookies,
    /// The value must look like one: letters with digits or signs, not code that fetches it.
    Value,
    /// Nearly anything: the place says that it is a password.
    Place,
    /// The group is empty and stands where a value starts, which goes up to one of these. A length in the
    /// pattern itself would make it slow.
    Starts(&'static str),
}

/// How much of a value is looked at to tell what it is. It goes whole, however long.
const LOOKED_AT: usize = 512;
/// Shorter ones are no secrets, or bad ones.
const SHORTEST: usize = 8;

impl Pattern {
    /// True if a match says nothing unless a command stands before it, so that another form may begin
    /// within the match.
    pub(super) const fn is_guess(&self) -> bool {
        matches!(self.check, Check::Argument(_))
    }

    /// The end of the secret that the group of a match shows; `None` when it is none.
    pub(super) fn end(&self, text: &str, start: usize, end: usize) -> Option<usize> {
        let value = &text[start..end];
        match self.check {
            Check::Place if !is_spelled_out(value) => None,
            Check::Form | Check::Place => Some(end),
            Check::Argument(commands) => {
                let fine = is_spelled_out(value) && has_command(&text[..start], commands);
                fine.then_some(end)
            }
            Check::Cookies => {
                let looked_at = &text[start..text.floor_char_boundary(start + 4 * LOOKED_AT)];
                let line = upto_any(looked_at, &['\n', '\r', '"', '\'', '\\']);
                let is_one = |cookie: &str| {
                    let value = cookie.split_once('=').map_or("", |(_, value)| value).trim();
                    value.len() >= SHORTEST && is_value(value)
                };
                let fine = line.split(';').any(is_one);
                fine.then(|| start + upto_any(&text[start..], &['\n', '\r', '"', '\'', '\\']).len())
            }
            Check::Value => is_value(value).then_some(end),
            Check::Starts(ends) => {
                let looked_at = upto(
                    &text[start..text.floor_char_boundary(start + LOOKED_AT)],
                    ends,
                );
                let before = &text[..start];
                let fine = looked_at.len() >= SHORTEST
                    && is_value(looked_at)
                    && !is_cursor(before)
                    && !is_in_arn(before);
                fine.then(|| start + upto(&text[start..], ends).len())
            }
        }
    }
}

/// True if a value stands there itself, and no variable, placeholder or mask of one.
fn is_spelled_out(value: &str) -> bool {
    !value.starts_with(['$', '{', '<', '*', '%', '['])
}

/// True if one of the commands stands before, on the same line.
fn has_command(before: &str, commands: &[&str]) -> bool {
    let near = &before[before.ceil_char_boundary(before.len().saturating_sub(LOOKED_AT))..];
    // A line break may be an escape, and a line may go on after a backslash.
    let line = near.rsplit('\n').next().unwrap_or_default();
    line.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
        .any(|word| commands.contains(&word))
}

fn upto_any<'a>(text: &'a str, ends: &[char]) -> &'a str {
    text.find(ends).map_or(text, |at| &text[..at])
}

fn upto<'a>(text: &'a str, ends: &str) -> &'a str {
    let end = |c: char| c.is_whitespace() || ends.contains(c);
    text.find(end).map_or(text, |at| &text[..at])
}

/// Tokens of paging are no secrets, and a summary may need them.
fn is_cursor(before: &str) -> bool {
    let label = &before[before.ceil_char_boundary(before.len().saturating_sub(32))..];
    let label = label.to_ascii_lowercase();
    let label = label
        .rsplit(char::is_whitespace)
        .find(|word| word.contains("token"));
    let cursors = [
        "page_token",
        "pagetoken",
        "next_token",
        "nexttoken",
        "continuation",
        "cursor",
    ];
    label.is_some_and(|label| cursors.iter().any(|name| label.contains(name)))
}

/// True within the name of an AWS resource, such as `arn:aws:secretsmanager:…:secret:name`, which is no secret.
fn is_in_arn(before: &str) -> bool {
    let near = &before[before.ceil_char_boundary(before.len().saturating_sub(128))..];
    let is_edge = |c: char| c.is_whitespace() || "\"'`,;=()[]{}<>".contains(c);
    let word = near.rsplit(is_edge).next().unwrap_or_default();
    word.starts_with("arn:aws")
}

/// Letters with digits or unusual signs, of some variety; no variable, path, placeholder or call.
fn is_value(value: &str) -> bool {
    if value.starts_with(['$', '{', '<', '*', '%', '/', '.', '[']) || value.contains("://") {
        return false;
    }
    let letters = value.bytes().any(|byte| byte.is_ascii_alphabetic());
    // A number alone may be a PIN; it may as well be a size, and sizes matter to a summary.
    let others = value
        .bytes()
        .any(|byte| byte.is_ascii_digit() || b"!@#$^&*+=~?/%".contains(&byte));
    let mut seen = [false; 256];
    value
        .bytes()
        .for_each(|byte| seen[usize::from(byte)] = true);
    let variety = seen.iter().filter(|seen| **seen).count();
    letters && others && variety >= 5
}

pub(super) const fn form(kind: &'static str, regex: &'static str) -> Pattern {
    Pattern {
        kind,
        regex,
        check: Check::Form,
    }
}

pub(super) const fn value(kind: &'static str, regex: &'static str) -> Pattern {
    Pattern {
        kind,
        regex,
        check: Check::Value,
    }
}

const fn starts(regex: &'static str, ends: &'static str) -> Pattern {
    Pattern {
        kind: "secret",
        regex,
        check: Check::Starts(ends),
    }
}

/// A form that is known by its middle: what stands to its left and right, in characters of a token.
pub(super) struct Infix {
    /// Its name in the placeholder.
    pub(super) kind: &'static str,
    /// The middle.
    pub(super) words: &'static str,
    left: (usize, usize),
    right: (usize, usize),
}

impl Infix {
    pub(super) const fn new(
        kind: &'static str,
        words: &'static str,
        left: (usize, usize),
        right: (usize, usize),
    ) -> Self {
        Self {
            kind,
            words,
            left,
            right,
        }
    }

    /// The token around a middle, which begins at `at`; none before `least` and none of another length.
    pub(super) fn around(&self, text: &str, at: usize, least: usize) -> Option<Range<usize>> {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"_~.+/=-".contains(byte);
        let bytes = text.as_bytes();
        let before = bytes[least.max(at.saturating_sub(2 * self.left.1 + 1))..at].iter();
        let before = before.rev().take_while(|byte| is_token(byte)).count();
        let from = at + self.words.len();
        let after = bytes[from..].iter().take(2 * self.right.1 + 4);
        let after = after.take_while(|byte| is_token(byte)).count();
        // A dot may end the sentence.
        let dot = usize::from(after > 0 && bytes[from + after - 1] == b'.');
        let after = after - dot;
        // `name=` before it is no part of it.
        let label = bytes[at - before..at]
            .iter()
            .rposition(|byte| *byte == b'=');
        let before = label.map_or(before, |label| before - label - 1);
        let fits = (self.left.0..=self.left.1).contains(&before)
            && (self.right.0..=self.right.1).contains(&after);
        fits.then(|| at - before..from + after)
    }
}

/// The ends of names that say that what follows is a secret: `DB_PASSWORD`, `spring.datasource.password`,
/// `SharedAccessKey`.
macro_rules! label {
    () => {
        r#"(?i-u:passwo?r?d|passphrase|pwd|secret|credentials?|(?:api|app|application|access|auth|secret|private|preshared|encryption|signing|account|master|service|subscription|license|bot|client-key-data|client[_-]?key)(?:[_-]?(?:key|token|data))|secret_key_base|[_-]pass|[_-]token|azure_devops_ext_pat\b|auth(?:orization)?|\btoken)"#
    };
}

/// What stands between a name and its value. Escaped quotes too: much of a transcript is JSON in JSON.
macro_rules! is {
    () => {
        r#"(?:\\?["'])?[ \t]*(?:=>|:=|[:=])[ \t]*"#
    };
}

/// What ends a value that is not quoted.
const BARE: &str = "\"'`,;<>()[]{}|\\";

pub(super) const PATTERNS: &[Pattern] = &[
    // The password alone: user, host and database are worth keeping.
    Pattern {
        kind: "url password",
        regex: r#"://[^\s/:@"'`<>]*:([^\s/"'`<>]+)@"#,
        check: Check::Place,
    },
    // The same with a slash in it, as people write it. A port before a path is none.
    Pattern {
        kind: "url password",
        regex: r#"://[^\s/:@"'`<>]*:([^\s/:@"'`<>]*[^\s/:@"'`<>0-9][^\s/:@"'`<>]*/[^\s:@"'`<>]*)@[A-Za-z0-9]"#,
        check: Check::Place,
    },
    // `name:password@tcp(host)/database` of go-sql-driver.
    Pattern {
        kind: "password",
        regex: r#"\b[A-Za-z0-9_.-]{1,64}:([^\s"'`<>:]+)@(?:tcp|tcp4|tcp6|unix|cloudsql)\("#,
        check: Check::Place,
    },
    // `curl -u name:password`; a mount or a user id of `docker` looks the same.
    Pattern {
        kind: "password",
        regex: r#"(?:-u|--user|-U|--proxy-user)[ =]?\\?["']?[^\s:"'\\/]{1,64}:([^\s"'`\\]+)"#,
        check: Check::Argument(&["curl", "wget", "http", "https", "xh", "httpie"]),
    },
    Pattern {
        kind: "password",
        regex: r#"[ \t](?:-p|-a)[ =]?\\?["']?([^\s"'`\\=-][^\s"'`\\]{3,})"#,
        check: Check::Argument(&[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mariadb",
            "sshpass",
            "redis-cli",
            "mongosh",
            "mongo",
            "mongodump",
            "login",
            "ldapsearch",
        ]),
    },
    Pattern {
        kind: "password",
        regex: r#"\b(?:passin|passout|pass)[ =](?:pass:)([^\s"'`\\]+)"#,
        check: Check::Place,
    },
    // `htpasswd -b file name password`, and `-n` without the file.
    Pattern {
        kind: "password",
        regex: r#"\bhtpasswd[ \t]+(?:-[A-Za-z0-9]+[ \t]+)*(?:-(?:[A-Za-z0-9]*b[A-Za-z0-9]*n|[A-Za-z0-9]*n[A-Za-z0-9]*b)[A-Za-z0-9]*|-[A-Za-mo-z0-9]*b[A-Za-mo-z0-9]*[ \t]+[^\s"'-][^\s"']*)[ \t]+[^\s"'-][^\s"']*[ \t]+\\?["']?([^\s"'`\\]{4,})"#,
        check: Check::Place,
    },
    // `.netrc`, on one line or on several.
    value(
        "password",
        r#"\blogin(?:\s|\\n|\\t)+[^\s\\]{1,128}(?:\s|\\n|\\t)+password(?:\s|\\n|\\t)+([^\s"'`\\]+)"#,
    ),
    // `.pgpass`
    Pattern {
        kind: "password",
        regex: r"(?m-u:^[A-Za-z0-9.*_-]{1,128}:(?:543[0-9]|\*):[A-Za-z0-9.*_-]{1,64}:[A-Za-z0-9.*_-]{1,64}:([!-~]+)$)",
        check: Check::Place,
    },
    // SQL.
    Pattern {
        kind: "password",
        regex: r"(?i-u:\b(?:identified[ \t]+by|with[ \t]+(?:encrypted[ \t]+)?password|password))[ \t]+\\?'([^'\s\\]{4,})'",
        check: Check::Place,
    },
    // The default of a Terraform variable whose name says that it is one.
    value(
        "secret",
        r#"(?i-u:\bvariable[ \t]+\\?"[a-z0-9_-]{0,64}(?:password|passwd|passphrase|secret|token|api_?key|private_?key)\\?"[ \t]*\{[\t\n\r -z|~]{0,256}?\bdefault[ \t]*=[ \t]*\\?"([!#-\[\]-~]{6,})\\?")"#,
    ),
    // The entries of a Kubernetes container's environment, in YAML and in JSON.
    value(
        "secret",
        r#"(?i-u:\bname\\?["']?[ \t]*:[ \t]*\\?["']?[a-z0-9_.-]{0,64}(?:password|passwd|passphrase|secret|token|api_?key|private_?key)\\?["']?,?(?:\s|\\r|\\n)*\\?["']?value\\?["']?[ \t]*:[ \t]*\\?["']?([!#-&(-+.-\[^-|~-]{6,}))"#,
    ),
    // `pass = …` of rclone.
    value(
        "password",
        r"(?m-u:^[ \t]*pass[ \t]*=[ \t]*[\x22']?([!#-&(-~]{8,}))",
    ),
    // `vault operator init`.
    form(
        "unseal key",
        r"(?-u:\b(?:Unseal|Recovery) Key [0-9]{1,3}: ([A-Za-z0-9+/]{43,44}={0,2}))",
    ),
    // XML, and attributes that name what another holds.
    value(
        "secret",
        r"(?i-u:<[a-z0-9_.:-]{0,32}(?:password|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key)>[ \t]*([!-;=?-~]{6,})[ \t]*</)",
    ),
    value(
        "secret",
        r#"(?i-u:(?:key|name)=\\?["'][a-z0-9_.:-]{0,64}(?:password|passwd|secret|token|api[_-]?key)\\?["'][ \t]+value=\\?["']([!#-&(-\[\]-~]{6,})\\?["'])"#,
    ),
    // The private part of a JSON Web Key.
    value(
        "private key",
        r#"\\?"(?:d|p|q|dp|dq|qi|k)\\?"\s*:\s*\\?"((?-u:[A-Za-z0-9_-]){40,})\\?""#,
    ),
    Pattern {
        kind: "cookie",
        regex: r#"(?i-u:\b(?:set-)?cookie\\?["']?[ \t]*:[ \t]*\\?["']?)()(?-u:[A-Za-z0-9_.%-])+="#,
        check: Check::Cookies,
    },
    Pattern {
        kind: "cookie",
        regex: r#"(?:-b|--cookie)[ =]\\?["']()(?-u:[A-Za-z0-9_.%-])+="#,
        check: Check::Cookies,
    },
    form(
        "signature",
        r"(?i-u:[?&](?:sig|x-amz-signature|x-goog-signature)=([a-z0-9%+/=_-]{20,}))",
    ),
    value(
        "bearer token",
        r"(?i-u:\bbearer[ \t]+([a-z0-9._~+/=-]{16,}))",
    ),
    value(
        "basic credentials",
        r"(?i-u:\bauthorization[\x22']?[ \t]*[:=][ \t]*[\x22']?(?:basic|token|apikey|digest)[ \t]+([a-z0-9._~+/=-]{8,}))",
    ),
    starts(concat!(label!(), is!(), r#"\\?"()"#), "\"\\"),
    starts(concat!(label!(), is!(), "\\\\?'()"), "'\\"),
    starts(concat!(label!(), is!(), "()"), BARE),
    starts(
        concat!("--(?i-u:[a-z0-9-]{0,24})", label!(), r#"[ \t]+["']?()"#),
        BARE,
    ),
];
