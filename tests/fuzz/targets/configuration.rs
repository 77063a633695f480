//! The configuration: any text is read or refused, with places that lie inside of it.

/// The whole input is the file, where it is text.
pub fn parse(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Err(errors) = config::parse(text) {
        // Every error says where it is.
        assert!(!errors.render("trunkline.toml", text).is_empty());
    }
}
