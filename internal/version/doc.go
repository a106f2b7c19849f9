// Package version reports the version of twotier from which a program was built. [Number] is its
// only place in the code: a release is a commit in which Number is the newest heading of
// CHANGELOG.md, with a tag of that name.
//
// A program that go install built from a version of the module reports that version. One built from
// a clone reports Number and, if the build recorded it, the commit.
package version
