"""From scores to best trees and tags: methods, what they say, and why it is proven."""
