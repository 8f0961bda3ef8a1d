"""Authorization by policy: what a rule may say, the rules of a scope, and decisions that also filter rows.

Rules are Cedar policies. They may use the principal and its roles, the action, and of a memory its type, its four
states and its creator, besides the delegation and the time: nothing that a query could not decide before it ranks,
counts and pages. Deny is the default, and a forbid outweighs every permit.
"""
