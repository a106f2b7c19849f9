//go:build !linux

package elapsed

import "time"

// Asleep returns the total time for which the machine has been suspended since it booted. This
// system does not reveal it, so it is always 0.
func Asleep() time.Duration { return 0 }
