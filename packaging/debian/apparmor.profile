# Lets wireup make user namespaces (run --contain, --stage), and restricts it in no other way. Untried on Ubuntu.
abi <abi/4.0>,
include <tunables/global>

profile wireup /usr/bin/wireup flags=(unconfined) {
  userns,
}
