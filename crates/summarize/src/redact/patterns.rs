//! Patterns for secrets that are identified by context: a name, a position or a command. Each
//! pattern has one capture group, which contains the text to remove.
//!
//! If two patterns match at the same position, the first in the list wins. A pattern starts and ends
//! at word boundaries, so that no part of a longer secret remains.
//!
//! Two rules keep the search fast. Word boundaries are those of ASCII: with the boundaries of
//! Unicode, the automaton is not used for texts with other characters, and the search is a hundred
//! times slower. And if a check can reject a match, the match does not contain text that can be part
//! of the next match. A long value without spaces is therefore not matched, but measured by the
//! check.

use std::ops::Range;

/// A pattern for one form of secret.
pub(super) struct Pattern {
    /// The name in the placeholder.
    pub(super) kind: &'static str,
    /// A regular expression with exactly one group.
    pub(super) regex: &'static str,
    /// An additional condition, for patterns that match too much by themselves.
    check: Check,
}

pub(super) enum Check {
    /// No additional condition.
    Form,
    /// Accepts nearly any value if one of these commands precedes it on the same line. The group is
    /// empty, and the value extends to the end of the word.
    Argument(&'static [&'static str]),
    /// Accepts cookies. The group is empty and marks their start. They extend to the end of the line
    /// or string.
    Cookies,
    /// Accepts values that look like a secret: letters with digits or symbols. Rejects code that
    /// reads the value.
    Value,
    /// Accepts nearly any value, because the position identifies it as a password.
    Place,
    /// Accepts what `Place` accepts. The group is empty, and the value extends to the end of the
    /// word.
    Word,
    /// Accepts what `Value` accepts. The group is empty, and the value extends to a space or to one
    /// of these characters. A counted repetition in the pattern itself would be slow.
    Starts {
        ends: &'static str,
        min_bytes: usize,
        /// True if pagination tokens are accepted too.
        accepts_cursors: bool,
    },
}

/// The number of bytes that are inspected to classify a value. The whole value is removed, whatever
/// its length.
const MAX_INSPECTED_BYTES: usize = 512;
/// The minimum length of a secret in bytes.
const MIN_SECRET_BYTES: usize = 8;

impl Pattern {
    /// Returns true if a match is only a secret after a certain command. Another pattern may then
    /// match inside the match.
    pub(super) const fn is_guess(&self) -> bool {
        matches!(self.check, Check::Argument(_))
    }

    /// Returns the end of the secret that starts in the group of a match. Returns `None` if the
    /// value is not a secret.
    pub(super) fn end(&self, text: &str, start: usize, end: usize) -> Option<usize> {
        let value = &text[start..end];
        match self.check {
            Check::Form => Some(end),
            Check::Place => is_spelled_out(value).then_some(end),
            Check::Word => is_spelled_out(&text[start..]).then(|| end_of_word(text, start)),
            Check::Argument(commands) => {
                let fine = is_spelled_out(&text[start..]) && has_command(&text[..start], commands);
                fine.then(|| end_of_word(text, start))
            }
            Check::Cookies => {
                // Classification inspects a bounded prefix, which keeps the scan linear. The
                // removal covers the whole value.
                let looked_at =
                    &text[start..text.floor_char_boundary(start + 4 * MAX_INSPECTED_BYTES)];
                let line = prefix_until_any(looked_at, &['\n', '\r', '"', '\'', '\\']);
                let is_one = |cookie: &str| {
                    let value = cookie.split_once('=').map_or("", |(_, value)| value).trim();
                    value.len() >= MIN_SECRET_BYTES && is_value(value)
                };
                let fine = line.split(';').any(is_one);
                fine.then(|| {
                    start + prefix_until_any(&text[start..], &['\n', '\r', '"', '\'', '\\']).len()
                })
            }
            Check::Value => is_value(value).then_some(end),
            Check::Starts {
                ends,
                min_bytes,
                accepts_cursors,
            } => {
                let looked_at = prefix_until(
                    &text[start..text.floor_char_boundary(start + MAX_INSPECTED_BYTES)],
                    ends,
                );
                let before = &text[..start];
                let fine = looked_at.len() >= min_bytes
                    && is_value(looked_at)
                    && (accepts_cursors || !is_cursor(before))
                    && !is_in_arn(before);
                fine.then(|| start + prefix_until(&text[start..], ends).len())
            }
        }
    }
}

/// Returns true for a literal value. Variables, placeholders and masks are not literal.
fn is_spelled_out(value: &str) -> bool {
    !value.starts_with(['$', '{', '<', '*', '%', '['])
}

/// Returns true if one of the commands precedes the value on the same line.
fn has_command(before: &str, commands: &[&str]) -> bool {
    // The search is bounded, because it runs for every candidate.
    let near =
        &before[before.ceil_char_boundary(before.len().saturating_sub(MAX_INSPECTED_BYTES))..];
    // In JSON a line break is an escape sequence, and a backslash continues a line. Only real line
    // breaks end the search.
    let line = near.rsplit('\n').next().unwrap_or_default();
    line.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
        .any(|word| commands.contains(&word))
}

fn prefix_until_any<'a>(text: &'a str, ends: &[char]) -> &'a str {
    text.find(ends).map_or(text, |at| &text[..at])
}

/// Returns the end of the shell word that starts at `start`.
fn end_of_word(text: &str, start: usize) -> usize {
    start + prefix_until(&text[start..], "\"'`\\").len()
}

fn prefix_until<'a>(text: &'a str, ends: &str) -> &'a str {
    let end = |c: char| c.is_whitespace() || ends.contains(c);
    text.find(end).map_or(text, |at| &text[..at])
}

/// Returns true for pagination tokens. They are not secret, and a summary may need them.
fn is_cursor(before: &str) -> bool {
    let label = &before[before.ceil_char_boundary(before.len().saturating_sub(32))..];
    let label = label.to_ascii_lowercase();
    let label = label
        .rsplit(char::is_whitespace)
        .find(|word| word.contains("token"));
    let cursors = [
        "page_token", "pagetoken", "next_token", "nexttoken", "continuation", "cursor",
    ];
    label.is_some_and(|label| cursors.iter().any(|name| label.contains(name)))
}

/// Returns true inside an AWS resource name such as `arn:aws:secretsmanager:…:secret:name`, which is
/// not secret.
fn is_in_arn(before: &str) -> bool {
    let near = &before[before.ceil_char_boundary(before.len().saturating_sub(128))..];
    let is_edge = |c: char| c.is_whitespace() || "\"'`,;=()[]{}<>".contains(c);
    let word = near.rsplit(is_edge).next().unwrap_or_default();
    word.starts_with("arn:aws")
}

/// Returns true for a varied mix of letters with digits or symbols. Rejects variables, paths,
/// placeholders and calls.
fn is_value(value: &str) -> bool {
    if value.starts_with(['$', '{', '<', '*', '%', '/', '.', '[']) || value.contains("://") {
        return false;
    }
    let letters = value.bytes().any(|byte| byte.is_ascii_alphabetic());
    // A number alone could be a PIN, but is more often a size, which a summary needs.
    let others = value
        .bytes()
        .any(|byte| byte.is_ascii_digit() || b"!@#$^&*+=~?/%".contains(&byte));
    // A mask such as `xxxx0000` mixes letters and digits too, but has few different bytes.
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
        check: Check::Starts {
            ends,
            min_bytes: MIN_SECRET_BYTES,
            accepts_cursors: false,
        },
    }
}

/// A form that is identified by a fixed middle part. The limits are the numbers of token characters
/// on each side.
pub(super) struct Infix {
    /// The name in the placeholder.
    pub(super) kind: &'static str,
    /// The fixed middle part.
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

    /// Returns the token around the middle part at `at`. Returns `None` if it starts before `least`
    /// or has a different length.
    pub(super) fn around(&self, text: &str, at: usize, least: usize) -> Option<Range<usize>> {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"_~.+/=-".contains(byte);
        let bytes = text.as_bytes();
        // The window exceeds the longest token, so a longer run is measured as too long instead of cut to fit.
        let before = bytes[least.max(at.saturating_sub(2 * self.left.1 + 1))..at].iter();
        let before = before.rev().take_while(|byte| is_token(byte)).count();
        let from = at + self.words.len();
        let after = bytes[from..].iter().take(2 * self.right.1 + 4);
        let after = after.take_while(|byte| is_token(byte)).count();
        // A trailing dot ends the sentence and is not part of the token.
        let dot = usize::from(after > 0 && bytes[from + after - 1] == b'.');
        let after = after - dot;
        // A preceding `name=` is not part of the token.
        let label = bytes[at - before..at]
            .iter()
            .rposition(|byte| *byte == b'=');
        let before = label.map_or(before, |label| before - label - 1);
        let fits = (self.left.0..=self.left.1).contains(&before)
            && (self.right.0..=self.right.1).contains(&after);
        fits.then(|| at - before..from + after)
    }
}

/// The endings of names that identify the following value as a secret: `DB_PASSWORD`,
/// `spring.datasource.password`, `SharedAccessKey`.
macro_rules! label {
    () => {
        r#"(?i-u:passwo?r?d|passphrase|pwd|secret|credentials?|(?:api|app|application|access|auth|secret|private|preshared|encryption|signing|account|master|service|subscription|license|bot|client-key-data|client[_-]?key)(?:[_-]?(?:key|token|data))|secret_key_base|[_-]pass|[_-]token|azure_devops_ext_pat\b|auth(?:orization)?|\btoken)"#
    };
}

/// The separator between a name and its value. Includes escaped quotes, because transcripts contain
/// JSON within JSON.
macro_rules! is {
    () => {
        r#"(?:\\?["'])?[ \t]*(?:=>|:=|[:=])[ \t]*"#
    };
}

/// The characters that end an unquoted value.
const BARE: &str = "\"'`,;<>()[]{}|\\";

pub(super) const PATTERNS: &[Pattern] = &[
    // Only the password is removed. User, host and database are useful in a summary.
    Pattern {
        kind: "url password",
        regex: r#"://[^\s/:@"'`<>]*:([^\s/"'`<>]+)@"#,
        check: Check::Place,
    },
    // A URL password with a slash, as people write it. A port before a path does not match.
    Pattern {
        kind: "url password",
        regex: r#"://[^\s/:@"'`<>]*:([^\s/:@"'`<>]*[^\s/:@"'`<>0-9][^\s/:@"'`<>]*/[^\s:@"'`<>]*)@[A-Za-z0-9]"#,
        check: Check::Place,
    },
    // `name:password@tcp(host)/database` of go-sql-driver.
    Pattern {
        kind: "password",
        regex: r#"[A-Za-z0-9_.-]:([^\s"'`<>:]+)@(?:tcp|tcp4|tcp6|unix|cloudsql)\("#,
        check: Check::Place,
    },
    // `curl -u name:password`. The command is checked, because `docker` options have the same form.
    Pattern {
        kind: "password",
        regex: r#"(?:-u|--user|-U|--proxy-user)[ =]?\\?["']?[^\s:"'\\/]{1,64}:()[^\s"'`\\]"#,
        check: Check::Argument(&["curl", "wget", "http", "https", "xh", "httpie"]),
    },
    // `mysql -pPASSWORD`, `redis-cli -a PASSWORD` and `docker login -p PASSWORD`.
    Pattern {
        kind: "password",
        regex: r#"[ \t](?:-p|-a)[ =]?\\?["']?()[^\s"'`\\=-][^\s"'`\\]{3}"#,
        check: Check::Argument(&[
            "mysql", "mysqldump", "mysqladmin", "mariadb", "sshpass", "redis-cli", "mongosh",
            "mongo", "mongodump", "login", "ldapsearch",
        ]),
    },
    // `openssl … -passin pass:PASSWORD`.
    Pattern {
        kind: "password",
        regex: r#"(?-u:\b)(?:passin|passout|pass)[ =](?:pass:)()[^\s"'`\\]"#,
        check: Check::Word,
    },
    // `htpasswd -b file name password`, and `-n` without the file.
    Pattern {
        kind: "password",
        regex: r#"(?-u:\b)htpasswd[ \t]+(?:-[A-Za-z0-9]+[ \t]+)*(?:-(?:[A-Za-z0-9]*b[A-Za-z0-9]*n|[A-Za-z0-9]*n[A-Za-z0-9]*b)[A-Za-z0-9]*|-[A-Za-mo-z0-9]*b[A-Za-mo-z0-9]*[ \t]+[^\s"'-][^\s"']*)[ \t]+[^\s"'-][^\s"']*[ \t]+\\?["']?([^\s"'`\\]{4,})"#,
        check: Check::Place,
    },
    // `.netrc`, on one line or on several lines.
    value(
        "password",
        r#"(?-u:\b)login(?:\s|\\n|\\t)+[^\s\\]+(?:\s|\\n|\\t)+password(?:\s|\\n|\\t)+([^\s"'`\\]+)"#,
    ),
    // `.pgpass`
    Pattern {
        kind: "password",
        regex: r"(?m-u:^[A-Za-z0-9.*_-]+:(?:543[0-9]|\*):[A-Za-z0-9.*_-]+:[A-Za-z0-9.*_-]+:([!-~]+)$)",
        check: Check::Place,
    },
    // SQL.
    Pattern {
        kind: "password",
        regex: r"(?i-u:\b(?:identified[ \t]+by|with[ \t]+(?:encrypted[ \t]+)?password|password))[ \t]+\\?'([^'\s\\]{4,})'",
        check: Check::Place,
    },
    // The default of a Terraform variable with a name that identifies a secret.
    value(
        "secret",
        r#"(?i-u:\bvariable[ \t]+\\?"[a-z0-9_-]*(?:password|passwd|passphrase|secret|token|api_?key|private_?key)\\?"[ \t]*\{[\t\n\r -z|~]{0,256}?\bdefault[ \t]*=[ \t]*\\?"([!#-\[\]-~]{6,})\\?")"#,
    ),
    // The environment entries of a Kubernetes container, in YAML and in JSON.
    Pattern {
        kind: "secret",
        regex: r#"(?i-u:\bname\\?["']?[ \t]*:[ \t]*\\?["']?[a-z0-9_.-]*(?:password|passwd|passphrase|secret|token|api_?key|private_?key)\\?["']?,?(?:\s|\\r|\\n)*\\?["']?value\\?["']?[ \t]*:[ \t]*\\?["']?())"#,
        check: Check::Starts {
            ends: "\"',\\]}",
            min_bytes: 6,
            accepts_cursors: true,
        },
    },
    // `pass = …` in the configuration of rclone.
    value(
        "password",
        r"(?m-u:^[ \t]*pass[ \t]*=[ \t]*[\x22']?([!#-&(-~]{8,}))",
    ),
    // The output of `vault operator init`.
    form(
        "unseal key",
        r"(?-u:\b(?:Unseal|Recovery) Key [0-9]{1,3}: ([A-Za-z0-9+/]{43,44}={0,2}))",
    ),
    // XML elements, and attributes that name the value in another attribute.
    value(
        "secret",
        r"(?i-u:<[a-z0-9_.:-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key)>[ \t]*([!-;=?-~]{6,})[ \t]*</)",
    ),
    value(
        "secret",
        r#"(?i-u:(?:key|name)=\\?["'][a-z0-9_.:-]*(?:password|passwd|secret|token|api[_-]?key)\\?["'][ \t]+value=\\?["']([!#-&(-\[\]-~]{6,})\\?["'])"#,
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
    // A value in double quotes, in single quotes and without quotes. The quote decides which characters end the value.
    starts(concat!(label!(), is!(), r#"\\?"()"#), "\"\\"),
    starts(concat!(label!(), is!(), "\\\\?'()"), "'\\"),
    starts(concat!(label!(), is!(), "()"), BARE),
    // An option with a space before its value: `--db-password VALUE`.
    starts(
        concat!("--(?i-u:[a-z0-9-]*)", label!(), r#"[ \t]+["']?()"#),
        BARE,
    ),
];
