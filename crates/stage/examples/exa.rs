use std::path::Path;
use wireup_stage::set::*;
fn main() {
    let root = std::env::args().nth(1).unwrap();
    let what = std::env::args().nth(2).unwrap();
    let root = Path::new(&root);
    let listing = list(root);
    if what == "list" { std::process::exit(0) }
    let digests = wireup_stage::digests::Digests::in_folder("/tmp/again-w/dig".into());
    let listings = Listings::from([(root.to_owned(), listing)]);
    let set = Set::collect_with([root], &listings, &digests).unwrap();
    if what == "collect" { std::process::exit(0) }
    println!("{} {}", set.files(), set.digest()[0]);
}
