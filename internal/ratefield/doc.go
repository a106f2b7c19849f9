// Package ratefield writes the header fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11, for all endpoints and clients.
//
// Whatever the limits and their names are, the values are Lists of Structured Field Values (RFC
// 9651), which clients drop as a whole if one part of them is not. The package decides nothing:
// callers choose which limits to show.
package ratefield
