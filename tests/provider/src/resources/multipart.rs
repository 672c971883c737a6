//! Bodies of the type `multipart/form-data`.

use bytes::Bytes;

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    /// The name of a file. `None` for a text.
    pub(super) file: Option<String>,
    /// The content type.
    pub(super) kind: String,
    pub(super) bytes: Bytes,
}

/// Splits a body with this content type into its parts.
pub(super) fn parts(kind: &str, body: &Bytes) -> Result<Vec<Part>, String> {
    let boundary = kind
        .strip_prefix("multipart/form-data;")
        .and_then(|rest| attribute(rest, "boundary"))
        .ok_or("the content type is not multipart/form-data with a boundary")?;
    let delimiter = format!("--{boundary}");
    let mut rest = body.clone();
    let mut parts = Vec::new();
    let mut end = take(&mut rest, delimiter.as_bytes());
    // The last delimiter is followed by `--`.
    while end.is_some() && !rest.starts_with(b"--") {
        let head = take(&mut rest, b"\r\n\r\n").ok_or("a part has no end of its headers")?;
        // The line break before a delimiter is not part of the content.
        let delimiter = format!("\r\n{delimiter}");
        let bytes = take(&mut rest, delimiter.as_bytes()).ok_or("a part has no end")?;
        parts.push(part(&String::from_utf8_lossy(&head), bytes)?);
        end = Some(head);
    }
    if parts.is_empty() {
        return Err("the body has no part".to_owned());
    }
    Ok(parts)
}

fn part(head: &str, bytes: Bytes) -> Result<Part, String> {
    let header = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let disposition = header("content-disposition").ok_or("a part has no content-disposition")?;
    let name = attribute(&disposition, "name").ok_or("a part has no name")?;
    Ok(Part {
        name,
        file: attribute(&disposition, "filename"),
        kind: header("content-type").unwrap_or_else(|| "text/plain".to_owned()),
        bytes,
    })
}

/// Returns the value of an attribute, without quotes.
fn attribute(text: &str, wanted: &str) -> Option<String> {
    let mut attributes = text.split(';').filter_map(|part| part.split_once('='));
    let found = attributes.find(|(name, _)| name.trim() == wanted);
    found.map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

/// Removes and returns the bytes before a mark, and removes the mark.
fn take(rest: &mut Bytes, mark: &[u8]) -> Option<Bytes> {
    let at = rest.windows(mark.len()).position(|bytes| bytes == mark)?;
    let taken = rest.split_to(at);
    let _ = rest.split_to(mark.len());
    Some(taken)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Part, parts};

    #[test]
    fn texts_and_files_are_read() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n\
            content-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\ncontent-type: text/x\r\n\r\n\
            one\r\ntwo\r\n--b--\r\n";
        let part = |name: &str, file: Option<&str>, kind: &str, bytes: &'static str| Part {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            kind: kind.to_owned(),
            bytes: Bytes::from(bytes),
        };
        let expected = [
            part("purpose", None, "text/plain", "batch"),
            part("file", Some("a.txt"), "text/x", "one\r\ntwo"),
        ];
        let body = Bytes::from(body);
        let kind = "multipart/form-data; boundary=b";
        assert_eq!(parts(kind, &body).unwrap(), expected);
        assert!(parts("application/json", &body).is_err());
        assert!(parts(kind, &body.slice(..40)).is_err());
    }
}
