//! Encoding of the array that a caller has.

use palimpsest_core::array::{ArrayTips, CallerArray, ChainHead, Link, LinkKind, RecordedItem};
use palimpsest_core::event::ArraySynced;
use palimpsest_core::message::{CanonicalDigests, Digest};

use super::error::{DecodeError, split_ids};
use super::stored_as::{StoredAs, cell};
use super::v1;

stored_struct! {
    ArraySynced = ArraySynced { version, format, lead, keep, links, confirmed, abandoned, tip }
    renamed { is_provisional = provisional }
}

stored_enum! {
    LinkKind = LinkKind { Content, Empty, Part }
    or "a link of an unknown kind"
}

stored_struct! { ChainHead = ChainHead { chain, length } }

/// Links as columns, which are smaller.
impl StoredAs<v1::Links> for Vec<Link> {
    fn to_proto(&self) -> v1::Links {
        let digests = self.iter().flat_map(|link| *link.digest.as_bytes());
        v1::Links {
            digests: digests.collect::<Vec<u8>>().into(),
            role: self.iter().map(|link| link.role.to_proto()).collect(),
            message: self.iter().map(|link| link.message.to_proto()).collect(),
            kind: self.iter().map(|link| link.kind.to_proto()).collect(),
        }
    }

    fn from_proto(stored: v1::Links) -> Result<Self, DecodeError> {
        let digests = split_ids(&stored.digests)?.into_iter().enumerate();
        let link = |(row, digest)| {
            Ok(Link {
                digest: Digest::from_bytes(digest),
                role: cell(&stored.role, row)?,
                message: cell(&stored.message, row)?,
                kind: cell(&stored.kind, row)?,
            })
        };
        digests.map(link).collect()
    }
}

nested! { Vec<Link> = Links or default }

/// The operator messages before a conversation, as links of which only the digests count.
impl StoredAs<v1::Links> for Vec<Digest> {
    fn to_proto(&self) -> v1::Links {
        let digests = self.iter().flat_map(|digest| *digest.as_bytes());
        v1::Links {
            digests: digests.collect::<Vec<u8>>().into(),
            ..v1::Links::default()
        }
    }

    fn from_proto(stored: v1::Links) -> Result<Self, DecodeError> {
        let digests = split_ids(&stored.digests)?.into_iter();
        Ok(digests.map(Digest::from_bytes).collect())
    }
}

nested! { Vec<Digest> = Links or default }

/// A recorded response as columns.
impl StoredAs<v1::RecordedResponse> for Vec<RecordedItem> {
    fn to_proto(&self) -> v1::RecordedResponse {
        let strict = self.iter().flat_map(|item| *item.digests.strict.as_bytes());
        let loose = self.iter().flat_map(|item| *item.digests.loose.as_bytes());
        v1::RecordedResponse {
            message: self.iter().map(|item| item.message.to_proto()).collect(),
            strict: strict.collect::<Vec<u8>>().into(),
            loose: loose.collect::<Vec<u8>>().into(),
            part: (0..)
                .zip(self)
                .filter(|(_, item)| item.kind == LinkKind::Part)
                .map(|(row, _)| row)
                .collect(),
        }
    }

    fn from_proto(stored: v1::RecordedResponse) -> Result<Self, DecodeError> {
        let loose = split_ids(&stored.loose)?;
        let strict = split_ids(&stored.strict)?.into_iter().enumerate();
        let item = |(row, strict)| {
            let loose = loose.get(row).copied();
            let loose = loose.ok_or(DecodeError::Damaged("a response without a digest"))?;
            let digests = CanonicalDigests {
                strict: Digest::from_bytes(strict),
                loose: Digest::from_bytes(loose),
            };
            // Only parts are stored as such. The kind of any other item follows from its digests.
            let is_part = u32::try_from(row).is_ok_and(|row| stored.part.contains(&row));
            Ok(RecordedItem {
                digests,
                message: cell(&stored.message, row)?,
                kind: if is_part {
                    LinkKind::Part
                } else {
                    LinkKind::of(&digests)
                },
            })
        };
        strict.map(item).collect()
    }
}

/// The array in a snapshot. Absent if the array is unknown.
pub(super) fn write(array: &CallerArray) -> Option<v1::CallerArray> {
    (array.version > 0).then(|| v1::CallerArray {
        version: array.version,
        format: array.format.to_proto(),
        lead: array.lead.to_proto(),
        links: array.links.to_proto(),
        provisional: array.is_provisional,
        abandoned: array.abandoned.to_proto(),
        responses: array.responses.to_proto(),
    })
}

pub(super) fn read(stored: Option<v1::CallerArray>) -> Result<CallerArray, DecodeError> {
    let Some(stored) = stored else {
        return Ok(CallerArray::default());
    };
    Ok(CallerArray {
        version: stored.version,
        format: StoredAs::from_proto(stored.format)?,
        lead: StoredAs::from_proto(stored.lead)?,
        links: StoredAs::from_proto(stored.links)?,
        is_provisional: stored.provisional,
        responses: StoredAs::from_proto(stored.responses)?,
        abandoned: StoredAs::from_proto(stored.abandoned)?,
    })
}

/// The tips in a snapshot. Absent if the session is found by its name only.
pub(super) fn write_tips(tips: &ArrayTips) -> Option<v1::ArrayTips> {
    let digests = tips.digests.iter().flat_map(|digest| *digest.as_bytes());
    tips.scope.map(|scope| v1::ArrayTips {
        scope: scope.to_proto(),
        digests: digests.collect::<Vec<u8>>().into(),
    })
}

pub(super) fn read_tips(stored: Option<v1::ArrayTips>) -> Result<ArrayTips, DecodeError> {
    let Some(stored) = stored else {
        return Ok(ArrayTips::default());
    };
    let digests = split_ids(&stored.digests)?.into_iter();
    Ok(ArrayTips {
        scope: Some(StoredAs::from_proto(stored.scope)?),
        digests: digests.map(Digest::from_bytes).collect(),
    })
}
