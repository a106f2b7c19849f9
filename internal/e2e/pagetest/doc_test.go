// Package pagetest opens the page of real nodes in a real Chromium, and clicks and types there. It
// has only tests, which skip themselves if there is no Chromium.
//
// With -shots DIR a test also saves pictures of the page: on a phone and wide, light and dark.
package pagetest
