//! Attachments.
