//! The credential of a person: a cookie that contains an API key or a token.
//!
//! The cookie is sent only to the inspector. A link in another page can lead to the inspector, and a form of another page
//! cannot: browsers send no cookie with it, and its origin is checked. The server keeps no state about it, so every
//! replica accepts it, and a revoked key ends the access at once.

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};
use palimpsest_http::CREDENTIALS;

const COOKIE_NAME: &str = "palimpsest_key";
/// The lifetime of the cookie: 12 hours.
const MAX_AGE_SECONDS: u32 = 12 * 60 * 60;
/// The maximum length of a credential, in bytes. A browser keeps no longer cookie.
const MAX_CREDENTIAL: usize = 4_000;

/// Adds the key of the cookie to headers without a credential. Returns true if they have one then.
pub(crate) fn add_credential(headers: &mut HeaderMap) -> bool {
    // A program sends its own header, which must not be replaced by a cookie.
    if CREDENTIALS.iter().any(|name| headers.contains_key(name)) {
        return true;
    }
    let of_cookie = key(headers).and_then(bearer);
    let has_one = of_cookie.is_some();
    headers.extend(of_cookie.map(|value| (AUTHORIZATION, value)));
    has_one
}

/// Returns the key of the cookie.
fn key(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter();
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    // A header has the form `a=1; b=2`. HTTP/2 clients may also send a header for each pair.
    let mut pairs = cookies.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

/// Returns the header for a key. `None` if the text cannot be a key.
fn bearer(key: &str) -> Option<HeaderValue> {
    if !is_key(key) {
        return None;
    }
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns true if a text can be the value of a cookie, which all keys and tokens can.
fn is_key(key: &str) -> bool {
    // The characters of RFC 6265. A semicolon in the key would end it and begin an attribute of the cookie.
    let is_fit = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\');
    !key.is_empty() && key.len() <= MAX_CREDENTIAL && key.bytes().all(is_fit)
}

/// Returns the header that stores a key in the browser. `None` if the text cannot be a key.
pub(crate) fn set_cookie(key: &str, is_secure: bool) -> Option<HeaderValue> {
    is_key(key).then(|| cookie(key, MAX_AGE_SECONDS, is_secure))?
}

/// Returns the header that removes the key from the browser.
pub(crate) fn remove_cookie(is_secure: bool) -> Option<HeaderValue> {
    cookie("", 0, is_secure)
}

fn cookie(value: &str, max_age: u32, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    // `HttpOnly` hides the key from scripts. `Lax` sends it with links of other pages and not with their POST forms.
    let text = format!(
        "{COOKIE_NAME}={value}; Path=/inspector; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}"
    );
    let mut header = HeaderValue::try_from(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cookie: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, cookie.parse().unwrap());
        let has_one = add_credential(&mut headers);
        let added = headers.get(AUTHORIZATION);
        assert_eq!(has_one, added.is_some());
        added.map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_key_comes_from_its_cookie() {
        assert_eq!(
            of("a=b; palimpsest_key=k1.x_y-z"),
            Some("Bearer k1.x_y-z".to_owned())
        );
        // A cookie whose name only begins with the name is another cookie.
        assert_eq!(of("palimpsest_key2=k"), None);
        assert_eq!(of("palimpsest_key="), None);
        assert_eq!(of("a=b"), None);
    }

    #[test]
    fn only_texts_without_separators_are_stored() {
        assert!(set_cookie("k1", false).is_some());
        for text in [
            "",
            "a b",
            "a;b",
            "a\nb",
            "ä",
            &"k".repeat(MAX_CREDENTIAL + 1),
        ] {
            assert!(set_cookie(text, true).is_none(), "{text}");
        }
        let secure = set_cookie("k", true).unwrap();
        assert!(secure.to_str().unwrap().ends_with("; Secure"));
    }
}
