//! Fuzzes stored data with arbitrary damage.

use palimpsest_core::ids::SessionKey;
use palimpsest_store::encoding::{
    VERSION, decode_frame, decode_list_row, decode_snapshot, encode_frame, encode_list_row,
    encode_snapshot,
};

/// Decodes the bytes as they are, and as the body of an envelope with a valid checksum. Otherwise the checksum would
/// reject almost every input.
pub(crate) fn run(data: &[u8]) {
    envelope(data);
    let mut hasher = crc32fast::Hasher::new();
    // The codec byte 0 stands for an uncompressed body. The checksum covers this byte and the body.
    hasher.update(&[0]);
    hasher.update(data);
    let sum = hasher.finalize().to_le_bytes();
    envelope(&[&[VERSION, 0], &sum[..], data].concat());
}

/// Asserts that decoded data is equal after encoding and decoding.
fn envelope(bytes: &[u8]) {
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    if let Ok(events) = decode_frame(bytes) {
        assert_eq!(decode_frame(&encode_frame(&events)).unwrap(), events);
    }
    if let Ok(snapshot) = decode_snapshot(key.clone(), bytes) {
        let again = decode_snapshot(key, &encode_snapshot(&snapshot)).unwrap();
        assert_eq!(again, snapshot);
        let _ = snapshot.restore([]);
    }
    if let Ok(about) = decode_list_row(bytes) {
        assert_eq!(decode_list_row(&encode_list_row(&about)).unwrap(), about);
    }
}
