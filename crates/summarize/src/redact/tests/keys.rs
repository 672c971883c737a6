//! Tests of private keys, complete and truncated, in all supported forms.

use super::super::redact;
use super::fake;

fn body(lines: usize) -> Vec<String> {
    (0..lines)
        .map(|line| fake(&format!("{line:02}"), 62))
        .collect()
}

/// Returns all lines of a block, including its markers.
fn block(label: &str) -> Vec<String> {
    let mut lines = vec![format!("-----BEGIN {label}-----")];
    lines.extend(body(20));
    lines.push("Qx7z0w==".to_owned());
    lines.push(format!("-----END {label}-----"));
    lines
}

/// Checks that no part of a key remains, down to the length of a line's beginning.
#[track_caller]
fn nothing_left(text: &str, name: &str) {
    let redacted = redact(text);
    assert!(redacted.count > 0, "{name}: nothing was found");
    for line in body(20) {
        let left = redacted.text.contains(&line[..12]) || redacted.text.contains(&line[40..]);
        assert!(!left, "{name}: {}", redacted.text);
    }
    assert!(
        !redacted.text.contains("Qx7z0w"),
        "{name}: {}",
        redacted.text
    );
    assert_eq!(redact(&redacted.text).count, 0, "{name}");
}

const LABELS: [&str; 8] = [
    "PRIVATE KEY",
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "DSA PRIVATE KEY",
    "OPENSSH PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "PGP PRIVATE KEY BLOCK",
    "ANY OTHER PRIVATE KEY",
];

#[test]
fn keys_of_every_label_are_redacted_in_every_encoding() {
    for label in LABELS {
        let lines = block(label);
        let numbered: Vec<String> = lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("{:>6}→{line}", at + 1))
            .collect();
        let each = |before: &str, after: &str| -> String {
            let lines = lines.iter().map(|line| format!("{before}{line}{after}"));
            lines.collect::<Vec<_>>().concat()
        };
        let carried = [
            ("plain", each("", "\n")),
            ("crlf", each("", "\r\n")),
            ("indented", each("      ", "\n")),
            ("quoted", each("> ", "\n")),
            ("diff", each("+", "\n")),
            ("json", format!("{{\"key\":\"{}\"}}", lines.join("\\n"))),
            (
                "json with crlf",
                format!("{{\"key\":\"{}\"}}", lines.join("\\r\\n")),
            ),
            (
                "json in json",
                format!("{{\\\"key\\\":\\\"{}\\\"}}", lines.join("\\\\n")),
            ),
            ("on one line", lines.join(" ")),
            ("array of strings", each("  \"", "\",\n")),
            ("joined strings", each("  \"", "\\n\" +\n")),
            ("numbered", numbered.join("\n")),
        ];
        for (name, text) in carried {
            nothing_left(
                &format!("before\n{text}\nafter"),
                &format!("{label}, {name}"),
            );
        }
    }
}

#[test]
fn truncated_keys_are_redacted() {
    for label in LABELS {
        let lines = block(label);
        for separator in ["\n", "\r\n", "\\n", "\\\\n", "\n    ", " "] {
            let text = lines.join(separator);
            for end in [
                text.len() / 3,
                text.len() / 2,
                text.len() - 3,
                text.len() - 40,
            ] {
                let cut = &text[..end];
                nothing_left(
                    &format!("key: {cut}"),
                    &format!("{label}, cut off at {end}"),
                );
                nothing_left(
                    &format!("{cut}\n\nThat is all."),
                    &format!("{label} before words, {end}"),
                );
            }
            for start in [20, text.len() / 3, text.len() / 2] {
                let cut = &text[start..];
                nothing_left(cut, &format!("{label}, {separator:?}, from {start}"));
            }
        }
    }
}

#[test]
fn keys_of_ssh2_putty_and_base64_are_redacted() {
    let lines = body(12).join("\n");
    let ssh2 = format!(
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: \"x\"\n{lines}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----"
    );
    nothing_left(&ssh2, "ssh2");
    let putty = format!(
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: x\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 12\n{lines}\nPrivate-MAC: 0a1b2c3d"
    );
    nothing_left(&putty, "putty");
    nothing_left(&putty.replace('\n', "\\n"), "putty in JSON");
    nothing_left(&putty[..putty.len() - 60], "putty, cut off");
    // `LS0tLS1CRUdJTi…` is the Base64 form of `-----BEGIN RSA PRIVATE KEY-----`.
    let encoded = format!(
        "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tL{}",
        body(12).concat()
    );
    nothing_left(&format!("data: {encoded}"), "base64");
}

#[test]
fn public_keys_and_text_about_keys_are_unchanged() {
    for text in [
        "a PRIVATE KEY is secret; never put a PRIVATE KEY into a file",
        "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOC\n-----END PUBLIC KEY-----",
        "----- END OF THE PRIVATE KEY SECTION -----",
    ] {
        assert_eq!(redact(text).text, text);
    }
    let after =
        redact("-----BEGIN PRIVATE KEY-----\nand then we went on to other things, all of them");
    assert!(after.text.contains("and then we went on"), "{}", after.text);
}
