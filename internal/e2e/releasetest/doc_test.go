// Package releasetest builds a release with scripts/release, then installs and uses each artifact
// by the commands of docs/install.md, and each part of a checkout that the page describes. Packages
// are installed on a copy of this machine that ends with the test. It has only tests. Tests skip
// themselves if a program or privilege they need is missing.
package releasetest
