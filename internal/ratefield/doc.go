// Package ratefield writes the header fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11, for all endpoints and clients.
//
// Whatever the limits and their names are, the values are Lists of Structured Field Values (RFC
// 9651); clients drop a List as a whole if one of its parts is invalid. The package decides
// nothing: callers choose which limits to show.
package ratefield
