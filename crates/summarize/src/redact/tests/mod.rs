//! Tests of the redaction: removed secrets, preserved text and idempotence.

use std::time::Duration;

use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

use super::redact;

mod formats;
mod keys;
mod kubernetes;

/// Checks a text in which `«…»` marks each part that must be removed.
#[track_caller]
fn gone(marked: &str, kind: &str) {
    let text = marked.replace(['«', '»'], "");
    let (before, rest) = marked.split_once('«').expect("a mark");
    let (secret, after) = rest.split_once('»').expect("a mark");
    let redacted = redact(&text);
    assert_eq!(redacted.text, format!("{before}[redacted: {kind}]{after}"));
    assert_eq!(redacted.count, 1, "{secret}");
    // A placeholder must not look like a secret, because a text can pass through redaction twice.
    let again = redact(&redacted.text);
    assert_eq!(
        (again.text.as_ref(), again.count),
        (redacted.text.as_ref(), 0)
    );
}

#[track_caller]
fn stays(text: &str) {
    let redacted = redact(text);
    assert_eq!((redacted.text.as_ref(), redacted.count), (text, 0));
    assert!(matches!(redacted.text, std::borrow::Cow::Borrowed(_)));
}

// The secrets are assembled at run time, so that repository scanners do not report this file.
fn fake(prefix: &str, length: usize) -> String {
    let filler = "a1B2c3D4e5F6g7H8i9J0kLmNoPqRsTuV".repeat(length.div_ceil(32));
    format!("{prefix}{}", &filler[..length])
}

#[test]
fn vendor_keys_are_redacted() {
    let cases = [
        ("sk-ant-api03-", 80, "anthropic key"),
        ("sk-proj-", 60, "openai key"),
        ("sk-", 48, "openai key"),
        ("sk-or-v1-", 64, "openai key"),
        ("ghp_", 36, "github token"),
        ("gho_", 36, "github token"),
        ("github_pat_", 82, "github token"),
        ("AIza", 35, "google key"),
        ("ya29.", 60, "google key"),
        ("xoxb-", 40, "slack token"),
        ("xoxp-", 40, "slack token"),
        ("glpat-", 20, "gitlab token"),
        ("npm_", 36, "npm token"),
        ("hf_", 34, "hugging face token"),
        ("sk_live_", 24, "stripe key"),
        ("rk_test_", 24, "stripe key"),
        ("whsec_", 32, "stripe key"),
        ("https://hooks.slack.com/services/", 40, "webhook"),
        ("https://discord.com/api/webhooks/", 80, "webhook"),
        ("gsk_", 52, "api key"),
        ("r8_", 37, "api key"),
        ("hvs.", 90, "api key"),
    ];
    for (prefix, length, kind) in cases {
        let key = fake(prefix, length);
        gone(&format!("before «{key}» after"), kind);
        gone(&format!("(«{key}»), and"), kind);
    }
    gone(&format!("«AKIA{}»:", "ABCDEFGH23456789"), "aws key");
    let (left, right) = (fake("", 22), fake("", 43));
    gone(&format!("key «SG.{left}.{right}»\n"), "sendgrid key");
    gone(&format!("\"«eyJ{left}.eyJ{left}.{right}»\""), "jwt");
    gone(
        &format!("AccountName=a;AccountKey=«{right}==»;End"),
        "secret",
    );
}

#[test]
fn values_of_secret_names_are_redacted() {
    gone("DB_PASSWORD=«hunter2-hunter2»", "secret");
    gone("password: «Tr0ub4dor&3x»\n", "secret");
    gone("\"api_key\": \"«0123456789abcdef»\"", "secret");
    gone(r#"{\"client_secret\": \"«zZ9-yY8-xX7w»\"}"#, "secret");
    gone(
        "aws_secret_access_key = «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
        "secret",
    );
    gone("export AUTH_TOKEN='«a1b2c3d4e5f6g7»'", "secret");
    gone("mysql --password «s3cr3t-value» db", "secret");
    gone(
        "Server=db;User Id=sa;Password=«P@ssw0rd123»;Encrypt=true",
        "secret",
    );
    gone("apiKey: '«AbCdEf123456»',", "secret");
    gone(
        "Authorization: Bearer «abcdef0123456789abcdef»",
        "bearer token",
    );
    gone(
        "authorization: Basic «dXNlcjpwYXNzd29yZDE=»",
        "basic credentials",
    );
    gone("postgres://app:«s3cr3t»@db:5432/x", "url password");
    gone("redis://:«p4ss»@cache", "url password");
    gone("https://user:«p@ss»@host/path", "url password");
    gone(
        "https://a.blob.core/x?sv=1&sig=«abcdefghijklmnopqrstuvwxyz%3D»",
        "signature",
    );
}

#[test]
fn complete_and_truncated_private_keys_are_redacted() {
    let line = fake("MIIE", 60);
    let body = format!("{line}\n{line}\nAbc=");
    gone(
        &format!("x\n«-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----»\ny"),
        "private key",
    );
    gone(
        &format!("«-----BEGIN PRIVATE KEY-----\\n{line}\\n-----END PRIVATE KEY-----»\\n"),
        "private key",
    );
    gone(
        &format!(
            "«-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n{body}\n-----END PGP PRIVATE KEY BLOCK-----»"
        ),
        "private key",
    );
    gone(
        &format!("«-----BEGIN EC PRIVATE KEY-----\n{line}\n{line}»"),
        "private key",
    );
    gone(
        &format!("«-----BEGIN EC PRIVATE KEY-----\n{line}»\nand then we went on"),
        "private key",
    );
    gone(
        &format!(
            "«-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,00\n\n{line}»\n..."
        ),
        "private key",
    );
    stays("-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----");
}

#[test]
fn other_text_is_unchanged() {
    stays("commit 8871ff0c1d2e3f405162738495a6b7c8d9e0f102 by someone");
    stays("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
    stays("id 550e8400-e29b-41d4-a716-446655440000, key 018f0c2e-7c4b-7d3e-9a51-0242ac120002");
    stays(
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    );
    stays("password = get_password()\nself.password = config.password\npassword: String,");
    stays("password=${DB_PASSWORD_1} token=$TOKEN1 secret: <your-secret-1> api_key=********1a");
    stays("let token = tokens.next_token(); max_tokens: 20000, token_count=12345678");
    stays("\"next_page_token\": \"Q2lBMTIzNDU2Nzg5\"");
    stays("PWD=/home/user/project1 OLDPWD=/tmp/a1");
    stays("the disk-abcdef0123456789abcdef01 and sk-cube-grid-animation-delay-01");
    stays("bearer authentication is required for this call");
    stays("http://localhost:8080/path@2x.png and https://example.com:443/a@b");
    stays("npm_config_registry, ghp_short, hf_hub_download, AKIASHORT, eyJ alone");
    stays("[redacted: jwt] password=[redacted: secret] postgres://u:[redacted: url password]@h");
    stays("");
}

#[test]
fn a_secret_inside_a_false_match_is_redacted() {
    let key = fake("ghp_", 36);
    gone(&format!("password: \"see «{key}» there\""), "github token");
    gone(&format!("token=${{X}}«{key}»"), "github token");
}

#[test]
fn several_secrets_are_redacted() {
    let text = format!(
        "{} {} {}",
        fake("ghp_", 36),
        fake("npm_", 36),
        fake("ghp_", 36)
    );
    let redacted = redact(&text);
    assert_eq!(redacted.count, 3);
    assert_eq!(
        redacted.text,
        "[redacted: github token] [redacted: npm token] [redacted: github token]"
    );
}

#[test]
fn redaction_takes_linear_time() {
    let attacks = [
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----",
        "://a:b@",
        "://a:b",
        "password=password=",
        "password: \"",
        "sk-",
        "eyJaaaaaaaa.",
        "bearer ",
        "a",
        "-",
        "aaaaaaaaaaaaaaaa\n",
        "kind: Secret\n",
        "kind: Secret\ndata:\n  a: bc\n",
        "- - - kind: Secret\n",
        "{\"kind\":\"Secret\",\"data\":{\"a\":\"b\",",
        "{\\\"kind\\\":\\\"Secret\\\"",
        "variable \"password\" { ",
        "htpasswd -b a ",
        "a:b@tcp",
        "$6$a$",
        "name: TOKEN\nvalue: ",
        "name: TOKEN\n\n\n",
        "pass = ",
        "arn:aws:secret:",
        "-ua:",
        "curl -ua:$",
        "pass=pass:$",
        "name:TOKENvalue:$",
        "a_token:",
        "login\na\npassword\n$",
    ];
    // Rules are compiled by the first redaction.
    drop(redact("password=a"));
    for attack in attacks {
        let mut shorter = None;
        for size in [1 << 14, 1 << 17, 1 << 20] {
            let text = attack.repeat(size / attack.len());
            let (length, took) = timed(&text);
            // A password of one letter is shorter than its placeholder.
            assert!(length <= 5 * size);
            // Each text has eight times the length of the one before. A linear pass takes about eight times as long, a
            // quadratic one 64 times. The short texts come first, because a quadratic pass of the last takes hours.
            if let Some(shorter) = shorter.replace(took) {
                // A time below a millisecond is mostly overhead.
                let limit = 40 * shorter.max(Duration::from_millis(1));
                assert!(
                    took < limit,
                    "{attack:?}: {took:?} for {size} bytes after {shorter:?} for an eighth of them"
                );
            }
        }
    }
}

#[test]
fn text_beyond_ascii_is_not_slower() {
    drop(redact("password=a"));
    let line = "let total = orders.iter().map(|order| order.price).sum(); // all open orders\n";
    let ascii = line.repeat(4_000);
    let (_, expected) = timed(&ascii);
    let (_, took) = timed(&ascii.replace("all", "tous réunis —"));
    // With the word boundaries of Unicode, the factor would be a hundred.
    let limit = 15 * expected.max(Duration::from_millis(1));
    assert!(took < limit, "{took:?} instead of {expected:?}");
}

/// Redacts a text. Returns the length of the result and the processor time of this thread, which other processes do not
/// change.
fn timed(text: &str) -> (usize, Duration) {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).expect("a time");
        Duration::new(seconds, u32::try_from(time.tv_nsec).expect("a time"))
    };
    let before = now();
    let length = redact(text).text.len();
    (length, now().saturating_sub(before))
}

fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\n]{0,12}",
        "[a-zA-Z0-9é_=:/@\"'.-]{0,24}",
        Just(fake("ghp_", 36)),
        Just(fake("sk-ant-", 30)),
        Just(fake("hf_", 34)),
        Just("AKIAABCDEFGH23456789".to_owned()),
        Just(format!(
            "{}.{}.{}",
            fake("eyJ", 20),
            fake("eyJ", 20),
            fake("", 20)
        )),
        Just("-----BEGIN RSA PRIVATE KEY-----".to_owned()),
        Just("-----END RSA PRIVATE KEY-----".to_owned()),
        Just("password=".to_owned()),
        Just("\"api_key\": \"".to_owned()),
        Just("://user:pass1@".to_owned()),
        Just("Bearer ".to_owned()),
        Just("[redacted: jwt]".to_owned()),
    ]
}

proptest! {
    #[test]
    fn redaction_is_idempotent(fragments in prop::collection::vec(fragment(), 0..12)) {
        let text = fragments.concat();
        let once = redact(&text);
        let twice = redact(&once.text);
        prop_assert_eq!(&once.text, &twice.text);
        prop_assert_eq!(twice.count, 0);
    }

    #[test]
    fn a_key_between_words_is_always_redacted(before in "[a-z ,.]{0,40}", after in "[a-z ,.]{0,40}") {
        let key = fake("ghp_", 36);
        let text = format!("{before} {key} {after}");
        prop_assert!(!redact(&text).text.contains(&key));
    }

    #[test]
    fn hashes_ids_and_base64_are_unchanged(
        hash in "[0-9a-f]{7,64}",
        id in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        base64 in "[A-Za-z0-9+/]{100,400}={0,2}",
    ) {
        let text = format!("at {hash} in {id}: data:image/png;base64,{base64}");
        prop_assert_eq!(redact(&text).count, 0);
    }
}
