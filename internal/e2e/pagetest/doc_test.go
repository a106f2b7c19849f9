// Package pagetest looks at the page of real nodes with a real Chromium, and clicks and types
// there. It has only tests, which skip themselves where there is no Chromium.
//
// With -shots DIR a test also saves pictures of the page: on a phone and wide, light and dark.
package pagetest
