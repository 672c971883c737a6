//! What a secret looks like. One capture group each: what is to go.
//!
//! Where two match at the same place, the first in the list wins. A pattern starts and ends where a word
//! does, so that what is taken out never exposes the rest of something longer.

/// One form of secret.
pub(super) struct Pattern {
    /// Its name in the placeholder.
    pub(super) kind: &'static str,
    /// With one group.
    pub(super) regex: &'static str,
    /// What more must hold, where the form alone would say too much.
    check: Check,
}

enum Check {
    /// The form is enough.
    Form,
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
    /// The end of the secret that the group of a match shows; `None` when it is none.
    pub(super) fn end(&self, text: &str, start: usize, end: usize) -> Option<usize> {
        let value = &text[start..end];
        match self.check {
            Check::Place if value.starts_with(['$', '{', '<', '*', '%', '[']) => None,
            Check::Form | Check::Place => Some(end),
            Check::Value => is_value(value).then_some(end),
            Check::Starts(ends) => {
                let looked_at = upto(
                    &text[start..text.floor_char_boundary(start + LOOKED_AT)],
                    ends,
                );
                let fine = looked_at.len() >= SHORTEST
                    && is_value(looked_at)
                    && !is_cursor(&text[..start]);
                fine.then(|| start + upto(&text[start..], ends).len())
            }
        }
    }
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

const fn form(kind: &'static str, regex: &'static str) -> Pattern {
    Pattern {
        kind,
        regex,
        check: Check::Form,
    }
}

const fn value(kind: &'static str, regex: &'static str) -> Pattern {
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

/// The ends of names that say that what follows is a secret: `DB_PASSWORD`, `spring.datasource.password`,
/// `SharedAccessKey`.
macro_rules! label {
    () => {
        r#"(?i-u:passwo?r?d|passphrase|pwd|secret|credentials?|(?:api|access|auth|secret|private|encryption|signing|account|master|service)[_-]?(?:key|token)|[_-]token|auth|\btoken)"#
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
    // A private key: to its end, or, when that is missing, as far as it looks like one.
    form(
        "private key",
        r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]*(?:-{1,4}[^-]+)*-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|(?:\s|\\n|\\r|[A-Za-z-]{2,24}: [^\n\\]{0,100}(?:\n|\\n))*(?-u:[A-Za-z0-9+/=]{16,}(?:\s|\\n|\\r)*)*(?-u:[A-Za-z0-9+/]{1,15}={1,2})?))",
    ),
    form("anthropic key", r"(?-u:\b(sk-ant-[A-Za-z0-9_-]{16,}))"),
    form(
        "openai key",
        r"(?-u:\b(sk-(?:(?:proj|svcacct|admin|or-v1|lf|service)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,}\b)))",
    ),
    form(
        "github token",
        r"(?-u:\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})\b)",
    ),
    form(
        "aws key",
        r"(?-u:\b((?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})\b)",
    ),
    form(
        "google key",
        r"(?-u:\b(AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}))",
    ),
    form(
        "slack token",
        r"(?-u:\b(xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}))",
    ),
    form(
        "gitlab token",
        r"(?-u:\b(gl(?:pat|dt|ptt|cbt|rt|soat|ft|imt|agent)-[A-Za-z0-9_-]{20,}))",
    ),
    form("npm token", r"(?-u:\b(npm_[A-Za-z0-9]{36,})\b)"),
    form(
        "hugging face token",
        r"(?-u:\b((?:hf|api_org)_[A-Za-z0-9]{30,})\b)",
    ),
    form(
        "stripe key",
        r"(?-u:\b((?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,})\b)",
    ),
    form(
        "sendgrid key",
        r"(?-u:\b(SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,}))",
    ),
    form(
        "webhook",
        r"(?-u:(https://(?:hooks\.slack\.com/(?:services|workflows|triggers)|(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks)/[A-Za-z0-9_/-]{10,}))",
    ),
    form(
        "jwt",
        r"(?-u:\b(eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ)?[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){0,2}))",
    ),
    form(
        "api key",
        r"(?-u:\b(gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|r8_[A-Za-z0-9]{37,}|pplx-[A-Za-z0-9]{40,}|nvapi-[A-Za-z0-9_-]{40,}|tvly-[A-Za-z0-9-]{20,}|dop_v1_[a-f0-9]{64}|shp(?:at|ss|ca|pa)_[A-Fa-f0-9]{32}|pypi-AgE[A-Za-z0-9_-]{50,}|hv[sb]\.[A-Za-z0-9_-]{24,}|dapi[a-f0-9]{32}|lin_api_[A-Za-z0-9]{32,}|figd_[A-Za-z0-9_-]{30,}|SK[0-9a-f]{32}|rubygems_[a-f0-9]{48}|NRAK-[A-Z0-9]{27}|gl(?:sa|c)_[A-Za-z0-9_]{32,}|sntry[su]_[A-Za-z0-9_=+/-]{32,}|tskey-[a-z]+-[A-Za-z0-9-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{58}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33})\b)",
    ),
    // The password alone: user, host and database are worth keeping.
    Pattern {
        kind: "url password",
        regex: r#"://[^\s/:@"'`<>]*:([^\s/"'`<>]+)@"#,
        check: Check::Place,
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
